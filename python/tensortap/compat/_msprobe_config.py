"""The settings of PrecisionDebugger: config.json, the constructor's arguments, their rules and msprobe's exceptions."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, ClassVar

__all__ = ["FileCheckException", "MsprobeException"]

TASKS = ("tensor", "statistics", "acc_check", "structure", "diff_check", "exception_dump", "nan_check")
LEVELS = ("L0", "L1", "L2", "mix", "debug")
_SUPPORTED = 'tensortap.compat serves the levels "debug" and "L0" with task "statistics" or "tensor"'
# of level L0, and what to do without them
_REFUSED = {
    "tensor_list": 'use task "tensor" with "list"',
    "slice": "leave it out and cut the tensors when they are read",
    "request_id": "leave it out",
    "bench_path": "leave it out and run msprobe compare on the two dumps",
}
# what stands in debug.json, as the recorder's option
SUMMARY_MODES = {"statistics": "", "md5": "crc32", "xor": "xor"}
_MOST = 1_000_000
_FILE_BYTES = 10 << 30


class _Coded(Exception):
    texts: ClassVar[dict[int, str]] = {}

    def __init__(self, code: int, error_info: str = "") -> None:
        super().__init__(self.texts.get(code, "") + error_info)
        self.code = code
        self.error_info = str(self)


class MsprobeException(_Coded):
    """A wrong argument or setting; ``code`` says which kind."""

    INVALID_PARAM_ERROR = 0
    OVERFLOW_NUMS_ERROR = 1
    RECURSION_LIMIT_ERROR = 2
    INTERFACE_USAGE_ERROR = 3
    UNSUPPORTED_TYPE_ERROR = 4
    INVALID_CHAR_ERROR = 5
    texts: ClassVar[dict[int, str]] = {
        0: "[msprobe] 无效参数：",
        3: "[msprobe] Invalid interface usage: ",
        4: "[msprobe] Unsupported type: ",
    }


class FileCheckException(_Coded):
    """A file that cannot be used; ``code`` says why."""

    INVALID_FILE_ERROR = 0
    FILE_PERMISSION_ERROR = 1
    SOFT_LINK_ERROR = 2
    ILLEGAL_PATH_ERROR = 3
    ILLEGAL_PARAM_ERROR = 4
    FILE_TOO_LARGE_ERROR = 5
    texts: ClassVar[dict[int, str]] = {
        0: "[msprobe] 无效文件： ",
        1: "[msprobe] 文件权限错误： ",
        2: "[msprobe] 检测到软链接： ",
        3: "[msprobe] 非法文件路径： ",
        4: "[msprobe] 非法打开方式： ",
        5: "[msprobe] 文件过大： ",
    }


def invalid(text: str) -> MsprobeException:
    """The exception for a wrong argument."""
    return MsprobeException(MsprobeException.INVALID_PARAM_ERROR, text)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a PrecisionDebugger does."""

    task: str
    dump_path: str
    ranks: frozenset[int]
    steps: frozenset[int]
    asynchronous: bool
    checksum: str  # of SUMMARY_MODES
    dump_enable: bool | None
    level: str
    names: tuple[str, ...]  # "list": parts of the names that are wanted
    scope: tuple[str, ...]  # none, or the first and the last name that is wanted
    data_mode: frozenset[str]
    extra_info: bool

    def takes(self, direction: str, side: str) -> bool:
        """Is this wanted by data_mode? direction: forward or backward, side: input or output."""
        modes = self.data_mode
        return all(
            "all" in modes or wanted in modes or not modes & pair
            for wanted, pair in ((direction, {"forward", "backward"}), (side, {"input", "output"}))
        )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bounded(what: str, number: int) -> int:
    if not 0 <= number <= _MOST:
        raise invalid(f"each element of {what} must be between 0 and {_MOST}, not {number}")
    return number


def _from_text(what: str, text: str) -> range:
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    if match is None:
        raise invalid(f'{what} element "{text}" must be a number or a range such as "3-5"')
    first = _bounded(what, int(match[1]))
    last = first if match[2] is None else _bounded(what, int(match[2]))
    if last < first:
        raise invalid(f'{what} element "{text}" must end above its start')
    return range(first, last + 1)


def numbers(given: Any, what: str) -> list[int]:
    """The numbers of a rank or step setting.

    >>> numbers([1, "0", "4-6", 1], "step")
    [0, 1, 4, 5, 6]
    """
    if given is None:
        return []
    if not isinstance(given, list):
        raise invalid(f"{what} is invalid, it should be a list")
    if len(given) > _MOST:
        raise invalid(f"{what} is invalid, its length cannot exceed {_MOST}")
    found: set[int] = set()
    for element in given:
        if _is_int(element):
            found.add(_bounded(what, element))
        elif isinstance(element, str):
            found.update(_from_text(what, element))
        else:
            raise invalid(f"{what} element {element} must be an integer or string.")
    return sorted(found)


def _load(path: str) -> dict[str, Any]:
    absolute = os.path.abspath(path)
    if os.path.islink(absolute):
        raise FileCheckException(FileCheckException.SOFT_LINK_ERROR, f"{path} is a link; give the file itself")
    if len(absolute) > 4096 or any(len(part) > 255 for part in absolute.split("/")):
        raise FileCheckException(FileCheckException.ILLEGAL_PATH_ERROR, f"{path} is too long")
    if not re.fullmatch(r"[a-zA-Z0-9_.:/-]+", os.path.realpath(absolute)):
        text = f"{path} has characters other than letters, digits and _ . : / -"
        raise FileCheckException(FileCheckException.ILLEGAL_PATH_ERROR, text)
    if not os.path.exists(absolute):
        raise FileCheckException(FileCheckException.ILLEGAL_PATH_ERROR, f"{path} does not exist")
    if not os.path.isfile(absolute) or not absolute.endswith(".json"):
        raise FileCheckException(FileCheckException.INVALID_FILE_ERROR, f"{path} is not a .json file")
    if not os.access(absolute, os.R_OK):
        raise FileCheckException(FileCheckException.FILE_PERMISSION_ERROR, f"{path} cannot be read")
    if os.path.getsize(absolute) > _FILE_BYTES:
        raise FileCheckException(FileCheckException.FILE_TOO_LARGE_ERROR, f"{path} is larger than 10 GiB")
    try:
        with open(absolute, encoding="utf-8") as file:
            loaded = json.load(file)
    except ValueError as error:
        raise FileCheckException(FileCheckException.INVALID_FILE_ERROR, f"{path} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise FileCheckException(FileCheckException.INVALID_FILE_ERROR, f"{path} must hold an object")
    return loaded


def _one_of(what: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise invalid(f"{what} must be one of {list(choices)}, not {value!r}")
    return value


def _is_bool(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{what} is invalid, it should be a bool, not {value!r}")
    return value


def _texts(what: str, value: Any) -> None:
    if value is not None and (not isinstance(value, list) or not all(isinstance(each, str) for each in value)):
        raise invalid(f"{what} is invalid, it should be a list of str")


def _part(task: str, part: Any) -> dict[str, Any]:
    """The settings of a task."""
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise invalid(f"{task} is invalid, it should be an object")
    for key in ("scope", "list", "tensor_list", "data_mode"):
        _texts(f"{task}.{key}", part.get(key))
    modes = set(part.get("data_mode") or ["all"])
    if modes - {"all", "input", "output", "forward", "backward"} or ("all" in modes and len(modes) > 1):
        raise invalid(f"{task}.data_mode is invalid: {part.get('data_mode')}")
    _one_of(f"{task}.summary_mode", part.get("summary_mode") or "statistics", tuple(SUMMARY_MODES))
    return part


def _check_modules(task: str, part: dict[str, Any], loaded: dict[str, Any]) -> None:
    """What level L0 takes of them."""
    for key, instead in _REFUSED.items():
        if part.get(key):
            raise invalid(f"{task}.{key} is not served at level L0 by tensortap.compat: {instead}")
    if "load" in loaded:
        raise invalid("load is not served by tensortap.compat: leave it out")
    for name in part.get("list") or ():
        if name.startswith("name-regex("):
            raise invalid(f"{task}.list takes parts of names, not {name}; give what the names have in common")
    scope = part.get("scope") or []
    if scope and len(scope) != 2:
        raise invalid(f"{task}.scope must be the first and the last name, not {len(scope)} names")
    for name in scope:
        if not re.fullmatch(r"Module\..*\.(forward|backward)\.\d+", name):
            raise invalid(f'{task}.scope takes names such as "Module.layer.Linear.forward.0", not "{name}"')


def read(config_path: Any, task: Any, dump_path: Any, level: Any, step: Any) -> Settings:
    """The settings of a constructor's arguments and the file they name."""
    if config_path is not None and not isinstance(config_path, str):
        raise invalid(f"config_path must be a str, not {config_path!r}")
    if task:
        _one_of("task", task, TASKS)
    if dump_path is not None and not isinstance(dump_path, str):
        raise invalid(f"dump_path must be a str, not {dump_path!r}")
    if level:
        _one_of("level", level, LEVELS)
    loaded = _load(config_path) if config_path else {"dump_path": "./dump_path", "level": "L1"}
    task = task or _one_of("task", loaded.get("task") or "statistics", TASKS)
    level = level or _one_of("level", loaded.get("level") or "L1", LEVELS)
    where = dump_path or loaded.get("dump_path")
    if not where:
        raise invalid("The dump_path not found.")
    if not isinstance(where, str):
        raise invalid(f"dump_path must be a str, not {where!r}")
    if loaded.get("precision", "low") not in ("low", "high"):
        raise invalid(f'precision must be "low" or "high", not {loaded["precision"]!r}')
    extra_info = _is_bool("extra_info", loaded.get("extra_info", True))
    enable = loaded.get("dump_enable")
    if level not in ("debug", "L0") or task not in ("statistics", "tensor"):
        raise invalid(f"level {level} with task {task}: {_SUPPORTED}")
    part = _part(task, loaded.get(task))
    if level == "L0":
        _check_modules(task, part, loaded)
    return Settings(
        task=task,
        dump_path=where,
        ranks=frozenset(numbers(loaded.get("rank"), "rank")),
        steps=frozenset(numbers(step if step is not None else loaded.get("step"), "step")),
        asynchronous=_is_bool("async_dump", loaded.get("async_dump", False)),
        checksum=SUMMARY_MODES[part.get("summary_mode") or "statistics"],
        dump_enable=None if enable is None else _is_bool("dump_enable", enable),
        level=level,
        names=tuple(part.get("list") or ()),
        scope=tuple(part.get("scope") or ()),
        data_mode=frozenset(part.get("data_mode") or ["all"]),
        extra_info=extra_info,
    )
