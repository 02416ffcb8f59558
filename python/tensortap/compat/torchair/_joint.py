"""experimental_config.aot_config_enable_joint_graph: forward and backward as one graph, run when the forward is called.

The gradients are those of the output that is the loss, a single number; the backward only scales them by the gradient
that comes in, which is 1 for ``loss.backward()``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from ..._record import directories
from ._ge_ops import aten
from ._lower import Emitter


def _loss(tangents: list[Node], count: int, index: Any) -> int | None:
    """Which of the gradients that come in is the loss's; None: there is no telling, or it is no single number."""
    if index is None or not tangents:
        return None
    at = 0 if len(tangents) == 1 else index if len(tangents) == count and isinstance(index, int) else None
    if at is None or not 0 <= at < len(tangents):
        return None
    value = tangents[at].meta.get("val")
    return at if isinstance(value, torch.Tensor) and value.dim() == 0 else None


def _forward(module: torch.fx.GraphModule, count: int, loss: int, mode: Any) -> torch.fx.GraphModule:
    """The joint graph with the gradient of the loss set to 1; gives the outputs and the gradients."""
    graph = module.graph
    end = next(iter(reversed(graph.nodes)))
    results = list(end.args[0])
    tangents = [node for node in graph.nodes if node.op == "placeholder" and "tangents" in str(node.target)]
    first = next(node for node in graph.nodes if node.op != "placeholder")
    emit = Emitter(graph, first, mode)
    for index, tangent in enumerate(tangents):
        value = tangent.meta["val"]
        if index == loss:
            given = emit(aten.ones.default, [], dtype=value.dtype, device=value.device)
            tangent.replace_all_uses_with(given)
        graph.erase_node(tangent)
    kept = [each for each in results[count:] if isinstance(each, Node)]
    end.args = (tuple(results[:count]) + tuple(kept),)
    graph.lint()
    module.recompile()
    return module


def _backward(joint: torch.fx.GraphModule, count: int, loss: int, mode: Any) -> torch.fx.GraphModule:
    """The gradients, times the one that comes in."""
    graph = torch.fx.Graph()
    end = next(iter(reversed(joint.graph.nodes)))
    grads = list(end.args[0])[count:]
    held = {}
    for index, grad in enumerate(each for each in grads if isinstance(each, Node)):
        held[index] = graph.placeholder(f"saved_{index}")
        held[index].meta["val"] = grad.meta["val"]
    tangents = []
    for node in joint.graph.nodes:
        if node.op == "placeholder" and "tangents" in str(node.target):
            tangents.append(graph.placeholder(str(node.target)))
            tangents[-1].meta["val"] = node.meta["val"]
    output = graph.output(())
    emit = Emitter(graph, output, mode)
    results: list[Any] = []
    for grad in grads:
        if isinstance(grad, Node):
            results.append(emit(aten.mul.Tensor, held[sum(1 for each in results if each is not None)], tangents[loss]))
        else:
            results.append(None)
    output.args = (tuple(results),)
    graph.lint()
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def partition(loss_index: Any) -> Callable[..., tuple[torch.fx.GraphModule, torch.fx.GraphModule]]:
    """How aot_autograd is to divide a joint graph: everything into the forward."""

    def divide(joint: torch.fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **more: Any) -> Any:
        from torch._functorch.partitioners import min_cut_rematerialization_partition
        from torch._guards import detect_fake_mode

        tangents = [node for node in joint.graph.nodes if node.op == "placeholder" and "tangents" in str(node.target)]
        loss = _loss(tangents, num_fwd_outputs, loss_index)
        mode = detect_fake_mode([node.meta.get("val") for node in joint.graph.nodes])
        others = any(tangent.users for index, tangent in enumerate(tangents) if index != loss)
        if loss is None or mode is None or others:
            directories.say_once(
                "joint",
                "aot_config_enable_joint_graph: the graph does not give one number as the loss and nothing else to "
                "differentiate, so forward and backward stay two graphs",
            )
            return min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)
        whole = copy.deepcopy(joint)
        return _forward(whole, num_fwd_outputs, loss, mode), _backward(joint, num_fwd_outputs, loss, mode)

    return divide

