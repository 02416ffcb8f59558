"""From torch.compile to a running graph: what a config asks for, in the order in which torchair does it."""

from __future__ import annotations

import copy
import functools
import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _engine, _joint, _npugraph_ex
from ._config import CompilerConfig, report_without_effect, warn_incompatible
from ._logger import EVENT, logger

__all__ = ["get_compiler", "get_npu_backend"]

_ids = itertools.count(1)


def _checked(config: Any) -> CompilerConfig:
    if config is None:
        return CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise TypeError(f"compiler_config is a torchair.CompilerConfig or None, not {type(config).__name__}")
    return config


class Compiled:
    """A graph that can be called: with its arguments, or, as torch does it, with one list that it may empty."""

    def __init__(self, run: Callable[[list[Any]], Any], compiled_us: int) -> None:
        self._run = run
        self._compiled_us = compiled_us
        self._boxed_call = True

    def __call__(self, *args: Any) -> Any:
        given = args[0] if len(args) == 1 and isinstance(args[0], list) else list(args)
        if not logger.isEnabledFor(EVENT):
            return self._run(given)
        start = time.perf_counter_ns()
        result = self._run(given)
        spent = (time.perf_counter_ns() - start) // 1000
        compiled, self._compiled_us = self._compiled_us, 0
        logger.event(
            f"torchair run at {time.time_ns() // 1000}, process input: 0us, compile {compiled}us, graph run: {spent}us"
        )
        return result


def eagerly(module: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The graph run by torch, as one function of a list."""
    from torch._functorch.aot_autograd import make_boxed_func

    return make_boxed_func(module.forward)  # type: ignore[no-any-return]


class Compiler:
    """Makes a function of one graph that aot_autograd traced; the graph's number is the next one of the process."""

    def __init__(self, config: CompilerConfig) -> None:
        self.config = config

    def __call__(self, module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        start = time.perf_counter_ns()
        run = self.compile(module, example_inputs, next(_ids))
        return Compiled(run, (time.perf_counter_ns() - start) // 1000)

    def compile(
        self, module: torch.fx.GraphModule, example_inputs: Sequence[Any], graph: int
    ) -> Callable[[list[Any]], Any]:
        """Summary, dump, passes, engine: each as far as the config says."""
        debug = self.config.debug
        if debug.fx_summary.type:
            if self.config.mode.value != "max-autotune":
                logger.warning("debug.fx_summary only works in max-autotune mode")
            else:
                from . import _summary

                _summary.write(module)
                if debug.fx_summary.skip_compile:
                    logger.warning("When enable FX Graph summarize, npu compilation will be skipped.")
                    return eagerly(module)
        if debug.data_dump.type and debug.data_dump.stage.value == "eager":
            from . import _dump

            return _dump.dumper(module, self.config, graph)
        module = copy.deepcopy(module)
        self.passes(module, example_inputs)
        if debug.run_eagerly:
            return eagerly(module)
        return _engine.compile(module, example_inputs, self.config, graph)

    def passes(self, module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        """Those of the user, around our own."""
        before, after = self.config.post_grad_custom_pre_pass.raw, self.config.post_grad_custom_post_pass.raw
        if before is not None:
            before(module, example_inputs, self.config)
        if self.config.experimental_config.remove_noop_ops:
            _remove_noops(module)
        if after is not None:
            after(module, example_inputs, self.config)
        module.graph.lint()
        module.recompile()


def _remove_noops(module: torch.fx.GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import remove_noop_ops

    remove_noop_ops(module.graph)
    module.recompile()


def get_compiler(compiler_config: CompilerConfig | None = None) -> Callable[..., Any]:
    """The function that compiles one traced graph; for backends of one's own."""
    return Compiler(_checked(compiler_config))


def _compile(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    config: CompilerConfig,
    decompositions: dict[Any, Callable[..., Any]],
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if options:
        config = _npugraph_ex.with_options(config, options)
    compiler = Compiler(config)
    experimental = config.experimental_config
    joint = bool(experimental.aot_config_enable_joint_graph)
    loss = experimental.aot_config_output_loss_index.raw
    divide = _joint.partition(loss) if joint else min_cut_rematerialization_partition
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=decompositions or None,
        partition_fn=divide,
        keep_inference_input_mutations=bool(experimental.keep_inference_input_mutations),
    )(module, inputs)
    return compiled


def get_npu_backend(
    *, compiler_config: CompilerConfig | None = None, custom_decompositions: dict[Any, Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    """A backend for torch.compile.

    >>> import torch
    >>> model = torch.compile(torch.nn.ReLU(), backend=get_npu_backend())
    >>> model(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    config = _checked(compiler_config)
    if config.mode.value == "reduce-overhead":
        warnings.warn('mode "reduce-overhead" is deprecated, use "npugraph_ex"', DeprecationWarning, stacklevel=2)
    warn_incompatible(config)
    report_without_effect(config)
    return functools.partial(_compile, config=config, decompositions=dict(custom_decompositions or {}))
