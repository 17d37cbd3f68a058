"""`python -m cutaway` is the command line."""

from cutaway.cli.main import main

main()
