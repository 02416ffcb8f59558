"""python -m tensortap.converter_test [-i FILE_OR_MODULE]... [PREFIX]: run every declared case, compiled and eagerly.

The cases are those that converters declare with ``declare_supported``: our own, and those of the files and modules that
are named with -i. PREFIX takes only the operators whose name begins with it, such as aten.add.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from typing import Any

USAGE = "usage: python -m tensortap.converter_test [-i FILE_OR_MODULE]... [PREFIX]"


def _same(got: Any, wanted: Any) -> str:
    """ "" where they agree, else what differs."""
    import torch

    if isinstance(wanted, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(wanted):
            return f"gave {got!r}, eager {wanted!r}"
        return next(filter(None, map(_same, got, wanted)), "")
    if not isinstance(wanted, torch.Tensor):
        return "" if got == wanted else f"gave {got!r}, eager {wanted!r}"
    if not isinstance(got, torch.Tensor) or (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        found = f"{getattr(got, 'dtype', type(got))}{tuple(getattr(got, 'shape', ()))}"
        return f"gave {found}, eager {wanted.dtype}{tuple(wanted.shape)}"
    if wanted.dtype in (torch.float16, torch.float32, torch.float64):
        if torch.allclose(got, wanted, rtol=1e-3, atol=1e-5, equal_nan=True):
            return ""
        return f"differs from eager by {(got - wanted).abs().max().item():g}"
    return "" if torch.equal(got, wanted) else "differs from eager"


def _copied(value: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, value)


def run_case(target: Any, case: Any, backend: Any) -> str:
    """ "" where the compiled operator gives what eager gives, else what went wrong."""
    import torch

    def eager(*args: Any, **kwargs: Any) -> Any:
        return _copied(target(*args, **kwargs))

    torch._dynamo.reset()
    try:
        torch.manual_seed(0)
        args, kwargs = case.make()
        wanted = eager(*args, **kwargs)
        torch.manual_seed(0)
        args, kwargs = case.make()
        got = torch.compile(eager, backend=backend)(*args, **kwargs)
        return _same(got, wanted)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def run(prefix: str = "") -> int:
    """Every declared case of the operators with this prefix; returns how many failed."""
    from .compat import torchair
    from .compat.torchair import _cases, _converter

    backend = torchair.get_npu_backend()
    ours = [(target, cases) for target, cases in _cases.declared() if _converter.find(target) is None]
    cases = [(each.target, each.supported_cases or []) for each in _converter.declared()] + ours
    failed = count = 0
    for target, declared in cases:
        if not str(target).startswith(prefix):
            continue
        for case in declared:
            what = f"{target}: {case}"
            print(f"[RUN] {what}", flush=True)
            wrong = run_case(target, case, backend)
            print(f"[FAILED] {what}: {wrong}" if wrong else f"[PASS] {what}", flush=True)
            failed += bool(wrong)
            count += 1
    if not count:
        print(f"Test result: no testcase of an operator whose name begins with {prefix!r}")
        return 1
    print("Test result: All testcases passed" if not failed else f"Test result: {failed} testcases failed")
    return failed


def main(args: list[str]) -> int:
    """The command; returns the exit status."""
    from . import compat

    compat.install()
    prefix = ""
    while args:
        first = args.pop(0)
        if first in ("-h", "--help"):
            print(__doc__)
            return 0
        if first in ("-i", "--import"):
            if not args:
                print(USAGE, file=sys.stderr)
                return 2
            name = args.pop(0)
            if os.path.exists(name):
                runpy.run_path(name)
            else:
                sys.path.insert(0, os.getcwd())
                importlib.import_module(name)
        elif first.startswith("-") or prefix:
            print(USAGE, file=sys.stderr)
            return 2
        else:
            prefix = first
    return 1 if run(prefix) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
