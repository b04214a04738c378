"""`python -m samebits`: the command."""

from samebits.cli import main

main()
