"""`python -m l2p`."""

import sys

from l2p.cli import main

if __name__ == "__main__":
    sys.exit(main())
