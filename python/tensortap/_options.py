"""Options of the backend: ``torch.compile(m, backend="tensortap", options={...})``, checked by name and type."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.fx

_TYPES: dict[str, tuple[type, ...]] = {"name": (str,)}


@dataclass
class Options:
    """What one compile was asked for."""

    name: str = "graph"
    engine_flags: int = 0
    observer: Callable[..., None] | None = None

    @classmethod
    def parse(cls, options: dict[str, Any] | None, mode: str | None = None) -> Options:
        made = cls()
        for key, value in (options or {}).items():
            if key not in _TYPES:
                near = difflib.get_close_matches(key, _TYPES, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; the options are: {', '.join(sorted(_TYPES))}"
                raise ValueError(f"tensortap has no option {key!r}{hint}")
            if not isinstance(value, _TYPES[key]):
                names = " or ".join(kind.__name__ for kind in _TYPES[key])
                raise TypeError(f"option {key!r} takes {names}, not {type(value).__name__}: {value!r}")
            setattr(made, key, value)
        return made

    def flags(self, node: torch.fx.Node) -> int:
        """TAP_CALL_* of a node."""
        return 0
