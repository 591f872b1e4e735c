"""What makes no sense together in a body, by the typing rules of SEMANTICS. Each module is one question."""
