"""The import hook: which module stands in for which, and changing torch as soon as it is imported."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from .._record.frameworks import when_imported

# what stands in: the module whose names it gets; "" for a package that only holds others
_STANDS_IN = {
    "torch_npu": "tensortap.compat.torch_npu",
    "torch_npu.npu": "tensortap.compat._npu",
    "msprobe": "",
    "msprobe.pytorch": "tensortap.compat.msprobe",
    "msprobe.mindspore": "tensortap.compat.msprobe_mindspore",
    "msprobe.core": "",
    "msprobe.core.common": "",
    "msprobe.core.common.exceptions": "tensortap.compat._msprobe_config",
    "troubleshooter": "tensortap.compat.troubleshooter",
    "troubleshooter.widget": "tensortap.compat.troubleshooter",
    "troubleshooter.migrator": "tensortap.compat.troubleshooter",
    "torch_npu.dynamo": "",
    "npugraph_ex": "tensortap.compat.npugraph_ex",
}

# the parts of torchair that scripts import, also from within torch_npu; each the part of ours that has its names
_TORCHAIR = {
    "": "",
    ".configs": None,
    ".configs.compiler_config": "._config",
    ".core": None,
    ".core.utils": "._logger",
    ".npu_fx_compiler": "._pipeline",
    ".ge": "._ge",
    ".ge.attr": "._ge_attr",
    ".ge._ge_graph": "._ge",
}
_CONCRETE = {
    "": None,
    ".ge_graph": "._ge",
    ".ge_apis": "._ge",
    ".fx2ge_converter": "._converter",
    ".supported_declaration": "._support",
    ".utils": "._converter_utils",
    ".ge_converter": None,
    ".ge_converter.converter_utils": "._converter_utils",
}
for _name in ("ge_concrete_graph", "_ge_concrete_graph"):
    _TORCHAIR |= {f".{_name}{_part}": _ours for _part, _ours in _CONCRETE.items()}
for _top in ("torchair", "torch_npu.dynamo.torchair"):
    for _part, _ours in _TORCHAIR.items():
        _STANDS_IN[_top + _part] = "" if _ours is None else "tensortap.compat.torchair" + _ours


class _StandIn(Loader):
    """Fills a module with the names of another one."""

    def __init__(self, source: str) -> None:
        self.source = source

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if not self.source:
            return  # only holds others
        source = importlib.import_module(self.source)
        names = getattr(source, "__all__", None) or [name for name in vars(source) if not name.startswith("_")]
        for name in (*names, "__version__", "__getattr__"):
            if hasattr(source, name):
                setattr(module, name, getattr(source, name))
        module.__doc__ = source.__doc__


def _change_torch() -> None:
    from . import _npu

    _npu.change_torch()


def _change_mindspore() -> None:
    """print_file_path, which MindSpore takes on Ascend only, is kept on every device."""
    import mindspore
    from mindspore import context

    real = context.set_context

    @functools.wraps(real)
    def set_context(**given: Any) -> None:
        path = given.pop("print_file_path", None)
        if given:
            real(**given)
        if path is not None and context.get_context("device_target") == "Ascend":
            real(print_file_path=path)
        elif path is not None:
            os.makedirs(os.path.dirname(os.path.realpath(path)), mode=0o750, exist_ok=True)
            context._context().set_print_file_path(path)

    context.set_context = mindspore.set_context = set_context


class _Finder(MetaPathFinder):
    """Comes last, so that a real package is found before; first with force. In any case it is told of torch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = _STANDS_IN.get(fullname)
        if source is None:
            return None
        top = fullname.partition(".")[0]
        if "." in fullname and not isinstance(getattr(sys.modules.get(top), "__loader__", None), _StandIn):
            return None  # a part that the real package lacks
        return ModuleSpec(fullname, _StandIn(source), origin="tensortap.compat", is_package=True)


class _TorchFinder(MetaPathFinder):
    """Changes torch when its import is done, and shows its later parts the torch they expect."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        loader = spec.loader if spec is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return None
        load = loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            if fullname == "torch":
                load(module)
                _change_torch()
                return
            npu = sys.modules.get("tensortap.compat._npu")
            if npu is None or not hasattr(npu, "real_device"):
                load(module)
                return
            with npu.real_device():
                load(module)

        loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


def stand_in(name: str) -> None:
    """Fill a package that is being imported with the names of ours."""
    module = sys.modules[name]
    loader = _StandIn(_STANDS_IN[name])
    module.__loader__ = loader
    module.__path__ = []
    loader.exec_module(module)


def add_finder(force: bool) -> None:
    """Put the hook in place, once."""
    present = [finder for finder in sys.meta_path if isinstance(finder, _Finder)]
    if present and force and sys.meta_path[0] is not present[0]:
        sys.meta_path.remove(present[0])
        sys.meta_path.insert(0, present[0])
    elif not present:
        sys.meta_path.insert(0 if force else len(sys.meta_path), _Finder())
    if not any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchFinder())
    if "torch" in sys.modules:
        _change_torch()
    if not present:
        when_imported("mindspore", _change_mindspore)
