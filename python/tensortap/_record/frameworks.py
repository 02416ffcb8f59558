"""What the rooms of torch and MindSpore do for this one: entered here once the framework is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: a tensor that the extension does not read itself, as ``values.simplify`` gives it
simplify_torch: Callable[[Any], tuple[Any, str | None, str | None, bool, str | None, str | None]] | None = None
#: shows a value of a graph that is being traced, whenever the graph runs
print_traced: Callable[[Any, str], None] | None = None
#: save_grad of the tensors of each
save_grad_torch: Callable[[Any, str], Any] | None = None
save_grad_mindspore: Callable[[Any, str], Any] | None = None
