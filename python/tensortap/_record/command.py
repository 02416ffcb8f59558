"""The console script: becomes the command that lies beside the library."""

import os
import sys

from .. import _core


def path() -> str:
    """Where the command is."""
    return os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "_bin", "tensortap")


def main() -> None:
    """Run the command with this process's arguments; does not return."""
    os.execv(path(), ["tensortap", *sys.argv[1:]])
