"""What makes no sense together in a body, by its types. Each module is one question."""
