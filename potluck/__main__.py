"""`python -m potluck`: the command line without the installed script."""

from potluck.cli import main

main()
