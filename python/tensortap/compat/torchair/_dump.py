"""debug.data_dump: the graph run by torch, operator by operator, every input and output on disk.

The files are the recorder's ``torchair`` layout, written in C while the graph goes on; all of a call's are in place
when the call returns.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ..._record import directories, recording, values
from ._config import CompilerConfig
from ._logger import logger
from ._names import world_and_rank


def dump_directory(path: str | None) -> str:
    """The directory that files go below, made where it is missing; raises when it cannot be used."""
    directory = path or os.getcwd()
    try:
        os.makedirs(directory, mode=0o750, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        text = f"config.debug.data_dump.path {directory}: a file is in the way; name a directory"
        raise NotADirectoryError(text) from None
    except OSError as error:
        raise type(error)(f"config.debug.data_dump.path {directory}: {error.strerror}; name another one") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(
            f"config.debug.data_dump.path {directory}: no permission to write there; name another one"
        )
    return directory


def recorder_of(path: str | None) -> recording.Recorder:
    """The recorder of a dump; raises when the path cannot be used."""
    world, rank = world_and_rank()
    return directories.recorder_for(dump_directory(path), "torchair", 0, world_size=world, rank=rank, asynchronous=True)


def _ask(keep: Callable[[torch.fx.Node], Any], node: torch.fx.Node) -> torch.fx.Node | None:
    kept = keep(node)
    if kept is not None and not isinstance(kept, torch.fx.Node):
        raise TypeError(
            f"config.debug.data_dump.filter returned a {type(kept).__name__} for {node.name}; return the node or None"
        )
    return kept


def dumped_nodes(graph: torch.fx.Graph, keep: Callable[[torch.fx.Node], Any] | None) -> dict[torch.fx.Node, str]:
    """What files of each node begin with. The filter is asked once for each node of the graph."""
    import operator

    found = {}
    for node in graph.nodes:
        kept = node if keep is None else _ask(keep, node)
        if kept is not None and node.op == "call_function" and node.target is not operator.getitem:
            found[node] = f"{kept.name}-{kept.target}"
    return found


_NUMBERS = (bool, int, float, complex)


class Dump:
    """Puts the values of one graph's nodes on disk."""

    def __init__(self, recorder: recording.Recorder, graph: int) -> None:
        self.recorder, self.graph = recorder, graph

    def put(self, value: Any, node: str, kind: str, argument: str, step: int, stamp: int) -> None:
        """A tensor or a number to its file, a list to one for each tensor; anything else has none."""
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized:
                value = values.simplify(value, False)[0]
        if isinstance(value, dict):
            for key, each in value.items():
                self.put(each, node, kind, f"{argument}.{key}", step, stamp)
        elif isinstance(value, (list, tuple)):
            if all(isinstance(each, _NUMBERS) for each in value):
                wide = torch.float64 if any(isinstance(each, float) for each in value) else None
                value = torch.tensor(value, dtype=wide) if value else torch.empty(0, dtype=torch.float64)
                self.put(value, node, kind, argument, step, stamp)
                return
            for index, each in enumerate(value):
                self.put(each, node, kind, f"{argument}.{index}", step, stamp)
        elif isinstance(value, (torch.Tensor, *_NUMBERS)):
            self.recorder.save(
                value, node, kind, step, node=node, graph_id=self.graph, argument=argument, stamp_us=stamp
            )


class _Run(torch.fx.Interpreter):  # type: ignore[misc]
    """One call of the graph."""

    def __init__(self, module: torch.fx.GraphModule, dump: Dump, names: dict[torch.fx.Node, str], step: int) -> None:
        super().__init__(module)
        self.dump, self.names, self.step = dump, names, step

    def run_node(self, n: torch.fx.Node) -> Any:
        name = self.names.get(n)
        if name is None:
            return super().run_node(n)
        stamp = time.time_ns() // 1000
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        for index, value in enumerate(args):
            self.dump.put(value, name, "input", str(index), self.step, stamp)
        for key, value in kwargs.items():
            self.dump.put(value, name, "input", key, self.step, stamp)
        result = super().run_node(n)
        outputs = result if isinstance(result, (list, tuple)) else [result]
        for index, value in enumerate(outputs):
            self.dump.put(value, name, "output", str(index), self.step, stamp)
        return result


class EngineDump:
    """The values of nodes as the engine computed them. ``wanted`` says of which nodes, ``steps`` in which calls."""

    def __init__(
        self,
        dump: Dump,
        wanted: Callable[[str, str], bool],
        mode: str = "all",
        steps: Callable[[int], bool] | None = None,
    ) -> None:
        self.dump, self.wanted, self.mode = dump, wanted, mode
        self.steps = steps or (lambda step: True)
        self.nodes: list[tuple[str, str] | None] = []
        self.step = 0

    def attach(self, program: Any) -> None:
        """Learn the numbers of the nodes."""
        self.nodes = [
            (node.name, node.target) if self.wanted(node.name, node.target) and "getitem" not in node.target else None
            for node in program.nodes()
        ]

    def __call__(self, number: int, args: Any, kwargs: Any, outputs: Any) -> None:
        """After a node ran."""
        node = self.nodes[number]
        if node is None or not self.steps(self.step):
            return
        name, stamp = f"{node[0]}-{node[1]}", time.time_ns() // 1000
        if self.mode in ("input", "all"):
            for index, value in enumerate(args or ()):
                self.dump.put(value, name, "input", str(index), self.step, stamp)
            for key, value in (kwargs or {}).items():
                self.dump.put(value, name, "input", key, self.step, stamp)
        if self.mode in ("output", "all"):
            for index, value in enumerate(outputs):
                self.dump.put(value, name, "output", str(index), self.step, stamp)

    def around(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Counts the calls that end well."""

        def counted(args: list[Any]) -> Any:
            try:
                result = run(args)
            finally:
                self.dump.recorder.flush()
            self.step += 1
            return result

        return counted


def engine_dump(module: torch.fx.GraphModule, config: CompilerConfig, graph: int) -> EngineDump:
    """What data_dump asks for at the stage of the engine."""
    options = config.debug.data_dump
    names = {node.name for node in dumped_nodes(module.graph, options.filter.raw)}
    return EngineDump(Dump(recorder_of(options.path.raw), graph), lambda name, target: name in names)


def _steps(text: str) -> Callable[[int], bool] | None:
    """ "0|2-5": whether a step is among them; None: all."""
    ranges = [part.partition("-") for part in text.split("|") if part]
    spans = [(int(low), int(high or low)) for low, _, high in ranges]
    return (lambda step: any(low <= step <= high for low, high in spans)) if spans else None


def config_dump(config: CompilerConfig, graph: int) -> EngineDump:
    """What dump_config asks for: values, or only their statistics in a recording of our own."""
    options = config.dump_config
    world, rank = world_and_rank()
    if options.dump_data.value == "stats":
        where = os.path.join(options.dump_path.raw, f"worldsize{world}_global_rank{rank}")
        more = {"keep": "stats", "mode": "append", "world_size": world, "rank": rank}
        recorder = directories.recorder_for(where, "native", 0, **more)
    else:
        recorder = recorder_of(os.path.realpath(options.dump_path.raw))
    layers = set(options.dump_layer.raw.replace('"', " ").split())
    wanted = (lambda name, target: name in layers) if layers else (lambda name, target: True)
    return EngineDump(Dump(recorder, graph), wanted, options.dump_mode.raw, _steps(options.dump_step.raw))


def _say_ignored(config: CompilerConfig) -> None:
    ignored = [path for path in config.set_options() if not path.startswith("debug.data_dump.")]
    if ignored:
        names = ", ".join("config." + path for path in ignored)
        directories.say_once(
            f"data_dump:{names}", f"data_dump runs the graph eagerly, so that these have no effect: {names}"
        )


def dumper(module: torch.fx.GraphModule, config: CompilerConfig, graph: int) -> Callable[[list[Any]], Any]:
    """A function that runs the graph and dumps; raises when the path or the filter cannot be used."""
    options = config.debug.data_dump
    names = dumped_nodes(module.graph, options.filter.raw)
    dump = Dump(recorder_of(options.path.raw), graph)
    _say_ignored(config)
    logger.warning("When enable FX Graph dump, npu compilation will be skipped, and FX Graph will be executed eagerly")
    lock = threading.Lock()
    steps = [0]

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        try:
            result = _Run(module, dump, names, steps[0]).run(*given)
        finally:
            dump.recorder.flush()
        with lock:
            steps[0] += 1
        return result

    return run
