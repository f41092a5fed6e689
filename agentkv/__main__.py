"""``python -m agentkv``: the command line."""

import sys

from agentkv.cli import main

__all__ = ()

if __name__ == "__main__":
    sys.exit(main())
