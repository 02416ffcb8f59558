"""The kinds of options that CompilerConfig is made of, and groups of them that check what is set.

Reading an option gives the object; its ``value`` is text, as torchair has it: None, "1" or "0" for a bool, else str.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def _error_line() -> str:
    now = time.strftime("%Y-%m-%d-%H:%M:%S")
    return f"\n[ERROR] {now} (PID:{os.getpid()}, Device:-1, RankID:-1) ERR03005 GRAPH internal error"


class OptionValue:
    """One option: what it is unless set, and the values it may have (None: any)."""

    def __init__(self, default: Any, optional: Sequence[Any] | None = None) -> None:
        self.default = default
        self.optional = optional
        self.raw = default

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __eq__(self, other: object) -> bool:
        return bool(self.raw == (other.raw if isinstance(other, OptionValue) else other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"

    @property
    def is_set(self) -> bool:
        """Whether it is other than by default."""
        return bool(self.raw != self.default)

    @property
    def value(self) -> str | None:
        """The value as text."""
        if self.raw is None:
            return None
        return str(int(self.raw)) if isinstance(self.raw, bool) else str(self.raw)

    @value.setter
    def value(self, value: Any) -> None:
        self.raw = self.check(value)

    def check(self, value: Any) -> Any:
        """The value to keep; raises for one that is not possible."""
        if self.optional is not None and not any(value == each for each in self.optional):
            kinds = ", ".join(dict.fromkeys(str(type(each)) for each in self.optional))
            raise ValueError(
                f"Value '{value}' (type: {type(value)}) not in optional list {list(self.optional)} (type: {kinds})."
            )
        return value


class Flag(OptionValue):
    """True or False."""

    def __init__(self, default: bool | None) -> None:
        super().__init__(default, [True, False])

    def check(self, value: Any) -> Any:
        return bool(super().check(value))


class Several(OptionValue):
    """One of the allowed values, or a list of them."""

    def check(self, value: Any) -> Any:
        each = value.split(",") if isinstance(value, str) and "," in value else value
        if not isinstance(each, (list, tuple, set)):
            return value if value is None else super().check(value)
        return ",".join(dict.fromkeys(str(super(Several, self).check(one)) for one in each))


class StrOptionValue(OptionValue):
    """Text, or None."""

    def check(self, value: Any) -> Any:
        if value is not None and not isinstance(value, str):
            raise ValueError(f"Please set str type, but got {type(value)}")
        return super().check(value)


class PathValue(OptionValue):
    """A path that need not be there yet; kept as its real path."""

    def check(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"Please set str type, but got {type(value)}")
        return os.path.realpath(value)


class IntRangeValue(OptionValue):
    """A whole number within limits."""

    def __init__(self, default: int | None, low: int, high: int) -> None:
        super().__init__(default)
        self.low, self.high = low, high

    def check(self, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"Please set integer type, but got {type(value)}")
        if not self.low <= value <= self.high:
            raise ValueError(f"Please set value in [{self.low}, {self.high}], {value} is out of range.")
        return value


class IntListValue(OptionValue):
    """A list of whole numbers, or None."""

    def check(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"Please set list type, but got {type(value)}")
        for each in value:
            if not isinstance(each, int) or isinstance(each, bool):
                raise ValueError(f"Please set integer type, but got {type(each)}")
        return list(value)


class DictOptionValue(OptionValue):
    """A dictionary, or None."""

    def check(self, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"Please set dict type, but got {type(value)}")
        return value


class PairValue(OptionValue):
    """A memory pool's handle: two whole numbers, one of them 0; or None."""

    def check(self, value: Any) -> Any:
        if value is None:
            return None
        whole = isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(each, int) for each in value)
        if not whole or 0 not in value:
            raise ValueError(f"Please set a tuple of two integers, one of them 0, but got {value!r}")
        return tuple(value)


class FileValue(OptionValue):
    """A file that is there, or None."""

    def check(self, value: Any) -> Any:
        if value is not None and not os.path.isfile(value):
            raise FileNotFoundError(f"Please set legal file path, {value} is not found or is not a file!")
        return value


class MustExistedFileAddr(OptionValue):
    """A .json file that is there, or None."""

    def check(self, value: Any) -> Any:
        if value is None:
            return None
        if not os.path.isfile(value):
            raise FileNotFoundError(f"Please set legal file path, {value} is not found or is not a file!")
        if not str(value).endswith(".json"):
            raise FileNotFoundError(f"Please set legal file path, {value} is not '.json' file!")
        return value


class MustExistedPathValue(OptionValue):
    """A directory that is there."""

    def check(self, value: Any) -> Any:
        if value is None or not os.path.isdir(value):
            raise FileNotFoundError(f"Please set legal dir path, {value} is not found or is not a file directory!")
        return value


class RegexValue(OptionValue):
    """Text of a certain form."""

    def __init__(self, default: str, form: str, example: str) -> None:
        super().__init__(default)
        self.form, self.example = form, example

    def check(self, value: Any) -> Any:
        if not isinstance(value, str) or re.fullmatch(self.form, value) is None:
            raise ValueError(
                f"Please set legal regex value format match {self.form}, {value} is Illegal format, "
                f"correct example:{self.example}."
            )
        return value


class CallableValue(OptionValue):
    """A function, or None."""

    def check(self, value: Any) -> Any:
        if value is not None and not callable(value):
            raise ValueError(f"Please set callable type, but got {type(value)}")
        return value


class DeprecatedValue(OptionValue):
    """An option that has another name now."""

    def __init__(self, optional: Sequence[Any] | None, *, replacement: str | None) -> None:
        super().__init__(None, optional)
        self.replacement = replacement


def _decorated(function: Callable[..., None]) -> Callable[..., None]:
    """What is raised ends in the line of torchair's error code."""

    @functools.wraps(function)
    def checked(self: Any, key: str, value: Any) -> None:
        try:
            function(self, key, value)
        except (ValueError, FileNotFoundError) as error:
            raise type(error)(f"{error}{_error_line()}") from None

    return checked


class NpuBaseConfig:
    """Options and groups of options under names; an unknown name or a wrong value raises when it is set."""

    def __init__(self, members: dict[str, Any], aliases: dict[str, str] | None = None) -> None:
        vars(self).update(members)
        vars(self)["_names"] = list(members)
        vars(self)["_aliases"] = aliases or {}

    @_decorated
    def __setattr__(self, key: str, value: Any) -> None:
        name = self._aliases.get(key, key)
        if name not in self._names:
            raise ValueError(f"{type(self).__name__} has no option {key}, all options {self._names}")
        member = vars(self)[name]
        if isinstance(value, OptionValue):
            value = value.raw
        if isinstance(member, OptionValue):
            member.value = value
        elif isinstance(value, type(member)):
            vars(self)[name] = value
        else:
            raise ValueError(f"{type(self).__name__} has a group {key}, not an option; set one of {member._names}")

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or "_aliases" not in vars(self) or key not in self._aliases:
            raise AttributeError(f"{type(self).__name__} has no option {key}")
        return vars(self)[self._aliases[key]]

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, OptionValue]]:
        """Every option with its path, "debug.graph_dump.type"."""
        for name in self._names:
            member = vars(self)[name]
            if isinstance(member, OptionValue):
                yield prefix + name, member
            else:
                yield from member.leaves(f"{prefix}{name}.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NpuBaseConfig):
            return False
        return {k: v.raw for k, v in self.leaves()} == {k: v.raw for k, v in other.leaves()}

    __hash__ = None  # type: ignore[assignment]
