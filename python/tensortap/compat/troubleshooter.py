"""troubleshooter where it is not installed: ``save`` and ``save_grad`` of torch and MindSpore tensors,
``widget.save_convert``."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

from .. import _core
from .._record import command, directories
from .._record.frameworks import when_imported

__all__ = ["migrator", "save", "save_convert", "save_grad", "widget"]


def _check(file: Any, output_mode: Any) -> None:
    if output_mode not in ("npy", "print"):
        raise ValueError(f"output_mode is 'npy' or 'print', not {output_mode!r}")
    if not isinstance(file, str) and file:
        raise TypeError(f"file is a str, not {type(file).__name__}")
    if file and file.endswith("/"):
        raise ValueError(f"file {file!r} names a directory; add a file name")


def _name(file: str) -> str:
    name = os.path.basename(file)
    return name[:-4] if name.endswith(".npy") else name


def put(x: Any, file: str, suffix: str, mode: str, path: tuple[str, ...] = ()) -> None:
    """One leaf: to its file, or printed."""
    if mode == "print":
        _show(x, f"_TS_SAVE_NAME:{'.'.join((_name(file), *path))}{'_' if suffix else ''}{suffix}")
        return
    if _is_torch(x):
        x = x.detach()
    where = "\x1f".join("k" + key for key in path) or None
    more = {"call": _core.next_file_id(), "suffix": suffix or None, "path": where}
    directories.write(file, "troubleshooter", 0, x, **more)


def _show(x: Any, text: str) -> None:
    """On the screen, or in MindSpore's print file where there is one."""
    if _is_mindspore(x):
        from .._mindspore import ms_taps

        where = ms_taps.print_file()
        if where:
            _core.print_to_file(where, text, x)
            return
    print(text, x, flush=True)


def _leaves(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            yield from _leaves(value, (*path, str(index)))
    elif data is not None:
        yield path, data


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _is_mindspore(x: Any) -> bool:
    mindspore = sys.modules.get("mindspore")
    return mindspore is not None and isinstance(x, mindspore.Tensor)


def _is_compiling() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def _is_array(x: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return _is_torch(x) or _is_mindspore(x) or (numpy is not None and isinstance(x, numpy.ndarray))


def save(file: str, data: Any, suffix: str | None = None, output_mode: str = "npy") -> None:
    """Save a tensor, or the tensors of a nested list, tuple or dict: ``<dir>/<id>_<name>[.<key>][_<suffix>].npy``.

    The id counts from 0 in order of execution. ``output_mode="print"`` prints instead.
    """
    _check(file, output_mode)
    leaves = list(_leaves(data))
    for path, leaf in leaves:
        if output_mode == "npy" and not _is_array(leaf):
            raise TypeError(f"save: {'.'.join((_name(file or ''), *path))} is a {type(leaf).__name__}; give tensors")
    for path, leaf in leaves:
        if _is_torch(leaf) and _is_compiling():
            import torch

            inside = "".join("." + key for key in path)
            torch.ops.tensortap_compat.trouble(leaf, (file or "") + inside, suffix or "", output_mode)
        else:
            put(leaf, file or "", suffix or "", output_mode, path)


def save_grad(file: str, data: Any, suffix: str = "backward", output_mode: str = "npy") -> Any:
    """Save the gradient of a tensor when it arrives; returns the tensor, for the next operator."""
    _check(file, output_mode)
    if _is_mindspore(data):
        return _save_mindspore_grad(file or "", data, suffix or "", output_mode)
    if not _is_torch(data):
        raise TypeError(f"save_grad takes a tensor, not {type(data).__name__}")
    if not data.requires_grad:
        directories.say_once("save_grad", f"save_grad: {file} needs no gradient, so none is going to be saved")
        return data
    name, end, mode = file or "", suffix or "", output_mode

    if _is_compiling():
        import torch

        def hook(grad: torch.Tensor) -> torch.Tensor:
            torch.ops.tensortap_compat.trouble(grad, name, end, mode)
            return grad

        data.register_hook(hook)
    else:
        data.register_hook(lambda grad: put(grad, name, end, mode))
    return data


def _save_mindspore_grad(file: str, data: Any, suffix: str, mode: str) -> Any:
    from .._mindspore import ms_taps

    return ms_taps.on_gradient(data, lambda grad: put(grad, file, suffix, mode))


def save_convert(file: str, output_path: str) -> None:
    """Turn a print file of MindSpore into .npy files: ``<output_path>/<name>_<dtype>_<id>.npy``."""
    if not os.path.isfile(file):
        raise ValueError(f"save_convert: there is no file {file}")
    done = subprocess.run([command.path(), "convert", file, output_path], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"save_convert: {done.stderr.strip() or done.stdout.strip()}")


widget = types.SimpleNamespace(save_convert=save_convert)
migrator = types.SimpleNamespace(save=save, save_grad=save_grad)


def _with_mindspore() -> None:
    from .._mindspore import ms_taps

    ms_taps.install_troubleshooter(save, save_grad)


when_imported("mindspore", _with_mindspore)
