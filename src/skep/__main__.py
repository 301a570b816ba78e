"""`python -m skep`."""

from skep.cli import main

main()
