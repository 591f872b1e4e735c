"""Program -> Paths, in steps: gradients takes the native exchange out, normal makes items, control the guards, line a
straight line per combination, schedule and keeping its pieces, fragments and placement what the runtime does. The
interpreter of programs and that of paths agree to the bit."""
