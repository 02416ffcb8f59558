"""What the rooms of torch and MindSpore do for this one, entered here once the framework is imported; and running a
function when that happens: tensortap imports neither itself."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

#: a tensor that the extension does not read itself, as ``values.simplify`` gives it
simplify_torch: Callable[[Any], tuple[Any, str | None, str | None, bool, str | None, str | None]] | None = None
#: shows a value of a graph that is being traced, whenever the graph runs
print_traced: Callable[[Any, str], None] | None = None
#: save_grad of the tensors of each
save_grad_torch: Callable[[Any, str], Any] | None = None
save_grad_mindspore: Callable[[Any, str], Any] | None = None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, then: Callable[[], None]) -> None:
        self.loader = loader
        self.then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self.then)
                return spec
        sys.meta_path.insert(0, self)
        return None


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` once, after the module of this name has been imported.

    >>> when_imported("sys", lambda: print("there already"))
    there already
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))
