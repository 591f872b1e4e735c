"""`python -m relaxc`"""

from relaxc.cli import main

main()
