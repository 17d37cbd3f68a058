"""`python -m cutaway.run.live MODEL`."""

import sys

from cutaway.run.live.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
