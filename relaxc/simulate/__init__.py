"""`relaxc simulate`: many virtual workers train in one process, as the interpreter says."""
