"""`python -m jmsclient`: the same as the console script."""

import sys

from jmsclient.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
