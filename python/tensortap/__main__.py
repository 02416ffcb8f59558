"""``python -m tensortap`` is the command ``tensortap``."""

from ._command import main

main()
