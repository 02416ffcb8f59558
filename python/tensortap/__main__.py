"""The command ``tensortap`` lies beside the library; the console script and ``python -m tensortap`` become it."""

import os
import sys

from . import _core


def path() -> str:
    """Where the command is."""
    return os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "_bin", "tensortap")


def main() -> None:
    """Run the command with this process's arguments; does not return."""
    os.execv(path(), ["tensortap", *sys.argv[1:]])


if __name__ == "__main__":
    main()
