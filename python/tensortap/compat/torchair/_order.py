"""experimental_config.topology_sorting_strategy: the order in which the nodes of a graph run."""

from __future__ import annotations

from collections import deque

import torch
from torch.fx import Node


def _is_fixed(node: Node) -> bool:
    """Side effects, writes and views of what is written keep their order, and so does everything beside them."""
    schema = getattr(node.target, "_schema", None)
    return node.is_impure() or (schema is not None and schema.is_mutable)


def _orders(nodes: list[Node], strategy: str) -> list[Node]:
    """Inputs come before uses; apart from that breadth first, depth first, or depth first from the other end."""
    inside = set(nodes)
    waiting = {node: len({each for each in node.all_input_nodes if each in inside}) for node in nodes}
    ready = deque(node for node in nodes if not waiting[node])
    if strategy == "RDFS":
        ready.reverse()
    found: list[Node] = []
    while ready:
        node = ready.popleft()
        found.append(node)
        freed = []
        for user in node.users:
            if user in inside:
                waiting[user] -= 1
                if not waiting[user]:
                    freed.append(user)
        if strategy == "BFS":
            ready.extend(freed)
        else:
            ready.extendleft(freed if strategy == "RDFS" else reversed(freed))
    return found


def sort(module: torch.fx.GraphModule, strategy: str) -> None:
    """Bring the nodes into order; the traced one is kept for DFS, which it is, and where operators write to memory."""
    if strategy in ("DFS", "StableRDFS"):
        return
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    if not nodes or any(_is_fixed(node) for node in nodes):
        return
    last = next(node for node in module.graph.nodes if node.op == "output")
    for node in _orders(nodes, strategy):
        last.prepend(node)
    module.graph.lint()
    module.recompile()
