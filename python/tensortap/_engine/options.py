"""Options of the backend: ``torch.compile(m, backend="tensortap", options={...})``, checked by name and type."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

#: option: types it takes, what it does
OPTIONS: dict[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "how the graphs of this compile are called in recordings and messages"),
    "tap": ((str,), 'record the values of these nodes: globs over node names and targets, "add*|aten.mm.*"'),
    "check": ((str,), '"eager": run each node also eagerly and stop at the first that differs'),
    "profile": ((bool,), "keep time and bytes per node: tensortap.profile()"),
    "strict": ((bool,), "refuse graphs with nodes that torch would have to run"),
}


@dataclass
class Options:
    """What one compile was asked for."""

    name: str = ""
    tap: str = ""
    check: str = ""
    profile: bool = False
    strict: bool = False

    @classmethod
    def parse(cls, options: dict[str, Any] | None) -> Options:
        """Of the dict given to torch.compile; a wrong name or type is an error that says what to write.

        >>> Options.parse({"profil": True})
        Traceback (most recent call last):
        ValueError: tensortap has no option 'profil'; did you mean 'profile'?
        """
        made = cls()
        for key, value in (options or {}).items():
            if key not in OPTIONS:
                near = difflib.get_close_matches(key, OPTIONS, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; the options are: {', '.join(sorted(OPTIONS))}"
                raise ValueError(f"tensortap has no option {key!r}{hint}")
            kinds = OPTIONS[key][0]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise TypeError(f"option {key!r} takes {names}, not {type(value).__name__}: {value!r}")
            setattr(made, key, value)
        if made.check not in ("", "eager"):
            raise ValueError(f"option 'check' takes \"eager\", not {made.check!r}")
        return made

    def taps(self, name: str, target: str) -> bool:
        """Whether a node's value is to be recorded.

        >>> Options(tap="add*|aten.mm.*").taps("mm_1", "aten.mm.default")
        True
        """
        return any(fnmatchcase(name, glob) or fnmatchcase(target, glob) for glob in self.tap.split("|") if glob)
