"""Program -> Paths, in steps: normal makes items of what gradients.py leaves, control the guards, line a straight line
per combination, cut and keeping its drafts of fragments, fragments and placement what the runtime does. The interpreter
of programs and that of paths agree to the bit."""
