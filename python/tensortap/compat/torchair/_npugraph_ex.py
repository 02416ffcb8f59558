"""The flat options of ``torch.compile(backend="npugraph_ex", options={...})``, and what they are in CompilerConfig."""

from __future__ import annotations

import copy
from typing import Any

from ..._record import directories
from ._config import _MOST, CompilerConfig
from ._options import (
    CallableValue,
    DictOptionValue,
    Flag,
    IntListValue,
    IntRangeValue,
    MustExistedPathValue,
    OptionValue,
    PairValue,
)

# name: what it may be, and the option of torchair's that it is; "!" before it: the other way round; "": only here
_TABLE: dict[str, tuple[OptionValue, str]] = {
    "force_eager": (Flag(False), "debug.run_eagerly"),
    "use_graph_pool": (PairValue(None), "aclgraph_config.use_custom_pool"),
    "reuse_graph_pool_in_same_fx": (Flag(True), "!debug.aclgraph.disable_mempool_reuse_in_same_fx"),
    "capture_limit": (IntRangeValue(64, 1, _MOST), "debug.aclgraph.static_capture_size_limit"),
    "clone_input": (Flag(True), "debug.aclgraph.clone_input"),
    "clone_output": (Flag(False), "debug.aclgraph.enable_output_clone"),
    "static_kernel_compile": (Flag(False), "experimental_config.aclgraph._aclnn_static_shape_kernel"),
    "disable_static_kernel_compile_cache": (Flag(False), ""),
    "frozen_parameter": (Flag(False), "experimental_config.frozen_parameter"),
    "remove_noop_ops": (Flag(True), "experimental_config.remove_noop_ops"),
    "remove_cat_ops": (Flag(True), "debug.aclgraph.remove_cat_ops"),
    "inplace_pass": (Flag(True), "!debug.aclgraph.disable_reinplace_inplaceable_ops_pass"),
    "input_inplace_pass": (Flag(True), "!debug.aclgraph.disable_reinplace_input_mutated_ops_pass"),
    "pattern_fusion_pass": (Flag(True), "experimental_config.pattern_fusion_pass"),
    "post_grad_custom_pre_pass": (CallableValue(None), "post_grad_custom_pre_pass"),
    "post_grad_custom_post_pass": (CallableValue(None), "post_grad_custom_post_pass"),
    "dump_tensor_data": (Flag(False), ""),
    "data_dump_stage": (OptionValue("optimized", ["optimized", "original"]), "dump_config.data_dump_stage"),
    "data_dump_dir": (MustExistedPathValue("./"), "debug.data_dump.path"),
    "super_kernel_optimize": (Flag(False), "experimental_config.aclgraph._super_kernel_optimize"),
    "super_kernel_optimize_options": (
        DictOptionValue(None), "experimental_config.aclgraph._super_kernel_optimize_options"),
    "super_kernel_debug_options": (DictOptionValue(None), "experimental_config.aclgraph._super_kernel_debug_options"),
    "deadlock_check": (Flag(False), "debug.deadlock_check"),
    "capture_error_mode": (OptionValue("global", ["global", "thread_local", "relaxed"]), ""),
    "force_recapture": (Flag(False), ""),
    "mode": (OptionValue("npugraph_ex", ["npugraph_ex"]), "mode"),
    "_vllm_aclnn_static_kernel_sym_index": (
        IntRangeValue(0, 0, _MOST), "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index"),
    "_vllm_aclnn_static_kernel_sym_range": (
        IntListValue(None), "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range"),
}  # fmt: skip
_WORK = {"dump_tensor_data"}  # of those without a place in CompilerConfig


class FlatConfig:
    """npugraph_ex's own CompilerConfig: flat, and its values are plain.

    >>> config = FlatConfig()
    >>> config.clone_output = True
    >>> config.clone_output.value
    True
    """

    def __init__(self) -> None:
        vars(self)["_options"] = {name: _Raw(copy.deepcopy(kind)) for name, (kind, _) in _TABLE.items()}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in vars(self).get("_options", ()):
            raise AttributeError(name)
        return self._options[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._options:
            raise ValueError(
                f"Invalid option '{name}'. The 'CompilerConfig' object does not have attribute '{name}'. "
                f"Supported attributes are: {sorted(self._options)}"
            )
        self._options[name].option.value = value

    def to_config(self) -> CompilerConfig:
        """The same for the backend."""
        return with_options(CompilerConfig(), {name: each.value for name, each in self._options.items() if each.is_set})


class _Raw:
    """An option whose value is not made text."""

    def __init__(self, option: OptionValue) -> None:
        self.option = option

    def __bool__(self) -> bool:
        return bool(self.option)

    @property
    def value(self) -> Any:
        """As it was set."""
        return self.option.raw

    @property
    def is_set(self) -> bool:
        """Whether it is other than by default."""
        return self.option.is_set


def with_options(config: CompilerConfig, options: dict[str, Any]) -> CompilerConfig:
    """A copy of a config with flat options put in; raises for one that is not there or not possible."""
    unknown = sorted(set(options) - set(_TABLE))
    if unknown:
        raise ValueError(f"Invalid option '{unknown[0]}', allowed options: {sorted(_TABLE)}")
    made = copy.deepcopy(config)
    made.mode = "npugraph_ex"
    for name, value in options.items():
        kind, path = _TABLE[name]
        value = kind.check(value)
        if not path:
            if name not in _WORK and value != kind.default:
                directories.say_once(f"npugraph_ex:{name}", f"the option {name} of npugraph_ex has no effect here")
            continue
        group: Any = made
        *parents, last = path.lstrip("!").split(".")
        for parent in parents:
            group = getattr(group, parent)
        setattr(group, last, not value if path.startswith("!") else value)
    if options.get("dump_tensor_data") and options.get("force_eager"):
        made.debug.data_dump.type = "npy"
    return made
