"""What all workers, and all stages of the compiler, must agree on to the bit.

Pure Python over plain numbers: the interpreter, the schedule, emit and attach share it, and it imports none of them.
`layout` says where each field of a code stands in a message, `ownership` who sums which block, `dither` how random
bits are keyed, `sums` in which order a block is added up.
"""
