"""`relaxc tune`: what a spec could be, as predicted, and which of it pays on which network."""
