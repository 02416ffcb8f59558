"""``python -m tensortap`` is the command ``tensortap``."""

from ._record.command import main

main()
