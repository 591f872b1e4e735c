"""The order in which a block is added up, the same on every target.

Element i goes to lane i % LANES, each lane adds its elements in order, starting from 0; then the lanes are folded in
halves: lane l += lane l + 16, + 8, + 4, + 2, + 1. A mean divides that sum by the number of elements; a norm is the
square root of the sum of squares. min and max give NaN where any element is NaN.
"""

LANES = 32
