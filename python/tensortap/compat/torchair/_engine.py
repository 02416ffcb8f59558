"""The one place that hands a traced graph to the engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import _core
from ..._engine.backend import compile_graph
from ..._record import directories
from . import _convert, _dump, _graph_dump, _order
from ._config import CompilerConfig


def native_targets(module: torch.fx.GraphModule) -> dict[str, str]:
    """ "whole" or "partly" for each operator of a graph that the engine runs itself, in all or some of its nodes."""
    program = compile_graph(module, [], name="summary").program
    native: dict[str, list[bool]] = {}
    for node in program.nodes():
        native.setdefault(node.target, []).append(node.kind == "view" or not node.host)
    found = {target: "whole" if all(each) else "partly" for target, each in native.items() if any(each)}
    for target in native:
        if target not in found and _core.engine_knows(target):
            found[target] = "partly"  # for other element types than these
    return found


def _fuses(config: CompilerConfig) -> bool:
    """Fusing is switched off as a whole: {"Switch": {"GraphFusion": {"ALL": "off"}}}."""
    path = config.fusion_config.fusion_switch_file.raw
    if path is None:
        return True
    try:
        with open(path, encoding="utf-8") as file:
            switches = json.load(file)["Switch"]
        pairs = {name: value for group in switches.values() for name, value in group.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f'{path}: expected {{"Switch": {{"GraphFusion": {{"ALL": "on" or "off"}}}}}}: {error!r}'
        ) from None
    unknown = sorted(set(pairs) - {"ALL"})
    if unknown:
        directories.say_once(f"fusion:{path}", f"{path}: there is no fusion of the name {unknown[0]}, only ALL")
    return pairs.get("ALL") != "off"


def compile(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any], config: CompilerConfig, graph: int
) -> Callable[[list[Any]], Any]:
    """A function that runs the graph. The module is changed: it belongs to the caller of the engine."""
    dump = None
    if config.debug.data_dump.type:
        dump = _dump.engine_dump(module, config, graph)
    elif config.dump_config.enable_dump:
        dump = _dump.config_dump(config, graph)
    types = config.debug.graph_dump.type.raw
    original = _convert.convert(module, graph) if types or _convert.has_converters(module) else None
    _order.sort(module, config.experimental_config.topology_sorting_strategy.raw)
    if types and original is not None:
        where = config.debug.graph_dump.path.raw
        _graph_dump.write(original, types.split(","), where, graph, "original")
        optimized = _convert.convert(copy.deepcopy(module), graph, converters=False)
        _graph_dump.write(optimized, types.split(","), where, graph, "optimized")
    compiled = compile_graph(module, example_inputs, name=f"graph_{graph}", observer=dump, fuse=_fuses(config))
    if dump is None:
        return compiled
    dump.attach(compiled.program)
    return dump.around(compiled)
