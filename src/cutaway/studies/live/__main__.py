"""`python -m cutaway.studies.live MODEL`."""

import sys

from cutaway.studies.live.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
