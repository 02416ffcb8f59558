"""python -m tensortap.compat [--force] SCRIPT [ARGS], or -m MODULE [ARGS]: run as python would, with compat on."""

from __future__ import annotations

import os
import runpy
import sys

from . import install

USAGE = """usage: python -m tensortap.compat [--force] SCRIPT [ARGS]
       python -m tensortap.compat [--force] -m MODULE [ARGS]

Runs a script written for torch_npu, msprobe or troubleshooter where those are not installed.
--force: use tensortap's even where the real packages are installed."""


def main(args: list[str]) -> int:
    """Run what the arguments name; returns the exit status of a mistake in them."""
    force = bool(args) and args[0] == "--force"
    if force:
        args = args[1:]
    if args and args[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    module = bool(args) and args[0] == "-m"
    if module:
        args = args[1:]
    if not args or args[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    if not module and not os.path.exists(args[0]):
        print(f"tensortap.compat: there is no file {args[0]}", file=sys.stderr)
        return 2
    install(force)
    sys.argv = args
    if module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(args[0]))
        runpy.run_path(args[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
