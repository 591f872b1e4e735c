"""Program -> Program. `verify` runs after each; the interpreter agrees before and after."""
