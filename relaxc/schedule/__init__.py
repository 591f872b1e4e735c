"""What runs when. Pure: numbers and names in, tuples out; attach uses it for plans that were made without a model."""
