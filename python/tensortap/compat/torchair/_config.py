"""CompilerConfig: one table with every option, what it may be, and whether it does something here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from ..._record import directories
from ._options import (
    CallableValue,
    DictOptionValue,
    FileValue,
    Flag,
    IntListValue,
    IntRangeValue,
    MustExistedFileAddr,
    MustExistedPathValue,
    NpuBaseConfig,
    OptionValue,
    PairValue,
    PathValue,
    RegexValue,
    Several,
    StrOptionValue,
)

_MOST = 2**63 - 1
_STEPS = r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$"
_LAYERS = r'^[0-9a-zA-Z_" "/\\.]*$'
_TOPOLOGY = {"BFS": "0", "DFS": "1", "RDFS": "2", "StableRDFS": "3"}
_ONE_IF = {True: "1", False: "0"}
_TRUE_IF = {True: "true", False: "false"}


class Row(NamedTuple):
    """One option."""

    path: str
    make: Callable[[], OptionValue]
    works: bool = True  # it does here what it says; else it is checked, and said once to have no effect
    key: str = ""  # of as_dict, "local:" or "global:" before it
    shown: dict[Any, str] | None = None  # its values there, where str is not what is wanted


def _flag(default: bool | None) -> Callable[[], OptionValue]:
    return lambda: Flag(default)


def _one_of(default: Any, *values: Any) -> Callable[[], OptionValue]:
    return lambda: OptionValue(default, list(values))


def _text() -> OptionValue:
    return StrOptionValue(None)


ROWS = (
    Row("debug.graph_dump.type", lambda: Several(None, ["txt", "pbtxt", "py", "dot"])),
    Row("debug.graph_dump.path", lambda: PathValue(None)),
    Row("debug.data_dump.type", _one_of(None, None, "npy")),
    Row("debug.data_dump.path", lambda: PathValue(None)),
    Row("debug.data_dump.filter", lambda: CallableValue(None)),
    Row("debug.data_dump.stage", _one_of("eager", "eager", "engine")),
    Row("debug.fx_summary.type", _one_of(None, None, "csv")),
    Row("debug.fx_summary.skip_compile", _flag(True)),
    Row("debug.run_eagerly", _flag(False)),
    Row("debug.deadlock_check", _flag(False), False),
    Row("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", _flag(False), False),
    Row("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", _flag(False), False),
    Row("debug.aclgraph.disable_mempool_reuse_in_same_fx", _flag(False), False),
    Row("debug.aclgraph.enable_output_clone", _flag(False), False),
    Row("debug.aclgraph.static_capture_size_limit", lambda: IntRangeValue(64, 1, _MOST), False),
    Row("debug.aclgraph.clone_input", _flag(True), False),
    Row("debug.aclgraph.remove_cat_ops", _flag(True), False),
    Row("aoe_config.aoe_mode", _one_of(None, None, "2"), False, "global:ge.jobType"),
    Row("aoe_config.work_path", lambda: MustExistedPathValue("./"), False),
    Row("aoe_config.aoe_config_file", lambda: FileValue(None), False, "global:ge.aoe_config_file"),
    Row("export.export_mode", _flag(False)),
    Row("export.export_path_dir", lambda: StrOptionValue("./")),
    Row("export.export_name", _text),
    Row("export.weight_name", lambda: OptionValue(None)),
    Row("export.inputs_name", lambda: OptionValue(None)),
    Row("export.experimental.enable_record_nn_module_stack", _flag(False), False),
    Row("export.experimental.auto_atc_config_generated", _flag(False), False),
    Row("export.experimental.enable_lite_export", _flag(False), False),
    Row("dump_config.enable_dump", _flag(False), True, "global:ge.exec.enableDump"),
    Row("dump_config.dump_path", lambda: MustExistedPathValue("./"), True, "global:ge.exec.dumpPath"),
    Row("dump_config.dump_mode", _one_of("all", "input", "output", "all"), True, "global:ge.exec.dumpMode"),
    Row("dump_config.quant_dumpable", _flag(False), False, "global:ge.quant_dumpable"),
    Row("dump_config.dump_step", lambda: RegexValue("", _STEPS, "0|1|2-5|6"), True, "global:ge.exec.dumpStep"),
    Row("dump_config.dump_layer", lambda: RegexValue("", _LAYERS, "Mul_1 Add1 Conv2D_1"), True,
        "global:ge.exec.dumpLayer"),
    Row("dump_config.dump_data", _one_of("tensor", "tensor", "stats"), True, "global:ge.exec.dumpData"),
    Row("dump_config.dump_config_path", lambda: MustExistedFileAddr(None), False),
    Row("dump_config.data_dump_stage", _one_of("optimized", "original", "optimized"), False),
    Row("fusion_config.fusion_switch_file", lambda: FileValue(None), True, "global:ge.fusionSwitchFile"),
    Row("experimental_config.cc_parallel_enable", _flag(False), False, "global:ge.exec.enableEngineParallel", _ONE_IF),
    Row("experimental_config.keep_inference_input_mutations", _flag(True)),
    Row("experimental_config.memory_efficiency", _flag(False), False, "local:ge.featureBaseRefreshable", _ONE_IF),
    Row("experimental_config.separate_atomic_clean", _flag(True), False, "local:ge.exec.atomicCleanPolicy", _ONE_IF),
    Row("experimental_config.frozen_parameter", _flag(False), False),
    Row("experimental_config.static_model_ops_lower_limit", lambda: IntRangeValue(None, -1, _MOST), False,
        "local:ge.exec.static_model_ops_lower_limit"),
    Row("experimental_config.jit_compile", _one_of("auto", "auto"), False, "local:ge.jit_compile", {"auto": "2"}),
    Row("experimental_config.npu_fx_pass", _flag(False), False),
    Row("experimental_config.aot_config_enable_joint_graph", _flag(False)),
    Row("experimental_config.aot_config_output_loss_index", lambda: OptionValue(0)),
    Row("experimental_config.topology_sorting_strategy", _one_of("DFS", *_TOPOLOGY), True, "local:ge.topoSortingMode",
        _TOPOLOGY),
    Row("experimental_config.enable_ref_data", _flag(False), False),
    Row("experimental_config.enable_view_optimize", _flag(True), False),
    Row("experimental_config.remove_noop_ops", _flag(True), True, "local:remove_noop_ops"),
    Row("experimental_config.tiling_schedule_optimize", _flag(False), False, "global:ge.tiling_schedule_optimize",
        _ONE_IF),
    Row("experimental_config.pattern_fusion_pass", _flag(True), False, "local:pattern_fusion_pass"),
    Row("experimental_config.aclgraph._aclnn_static_shape_kernel", _flag(False), False),
    Row("experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir", _text, False),
    Row("experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range", lambda: IntListValue(None), False),
    Row("experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index", lambda: IntRangeValue(0, 0, _MOST), False),
    Row("experimental_config.aclgraph._super_kernel_optimize", _flag(False), False),
    Row("experimental_config.aclgraph._super_kernel_optimize_options", lambda: DictOptionValue(None), False),
    Row("experimental_config.aclgraph._super_kernel_debug_options", lambda: DictOptionValue(None), False),
    Row("inference_config.dynamic_gears_merge_policy", _one_of("zip", "zip", "product"), False),
    Row("ge_config.enable_single_stream", _flag(False), False, "global:ge.enableSingleStream", _TRUE_IF),
    Row("ge_config.oo_level", _one_of("O3", "O1", "O3"), False, "local:ge.oo.level"),
    Row("ge_config.oo_constant_folding", _flag(None), False, "local:ge.oo.constantFolding", _TRUE_IF),
    Row("ge_config.oo_dead_code_elimination", _flag(None), False, "local:ge.oo.deadCodeElimination", _TRUE_IF),
    Row("ge_config.export_compile_stat", _one_of("2", "0", "1", "2"), False, "global:ge.exportCompileStat"),
    Row("ge_config.aicore_num", _text, False, "global:ge.aicoreNum"),
    Row("ge_config.optimization_switch", _text, False, "global:ge.optimizationSwitch"),
    Row("aclgraph_config.use_custom_pool", lambda: PairValue(None), False),
    Row("mode", _one_of("max-autotune", "max-autotune", "reduce-overhead", "npugraph_ex")),
    Row("post_grad_custom_pre_pass", lambda: CallableValue(None)),
    Row("post_grad_custom_post_pass", lambda: CallableValue(None)),
)  # fmt: skip

# the names of groups in messages
_CLASSES = {
    "debug": "_DebugConfig",
    "debug.graph_dump": "_GraphDumpConfig",
    "debug.data_dump": "_DataDumpConfig",
    "debug.fx_summary": "_FxSummaryConfig",
    "debug.aclgraph": "_AclGraphDebugConfig",
    "aoe_config": "_AoeConfig",
    "export": "_ExportConfig",
    "export.experimental": "_ExportExperimentalConfig",
    "dump_config": "_DataDumpConfig",
    "fusion_config": "_FusionConfig",
    "experimental_config": "_ExperimentalConfig",
    "experimental_config.aclgraph": "_AclGraphExperimentalConfig",
    "inference_config": "_InferenceConfig",
    "ge_config": "_GEConfig",
    "aclgraph_config": "_AclGraphConfig",
}
# other spellings of a name within its group
_ALIASES = {
    "debug.graph_dump": {"dtype": "type"},
    "experimental_config": {"keep_inference_input_mutation": "keep_inference_input_mutations"},
}
_GROUPS = {path: type(name, (NpuBaseConfig,), {}) for path, name in _CLASSES.items()}


def _members(prefix: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for row in ROWS:
        if not row.path.startswith(prefix):
            continue
        name, _, more = row.path[len(prefix) :].partition(".")
        path = prefix + name
        if not more:
            members[name] = row.make()
        elif name not in members:
            members[name] = _GROUPS[path](_members(path + "."), _ALIASES.get(path))
    return members


class CompilerConfig(NpuBaseConfig):
    """The settings of a compile.

    >>> config = CompilerConfig()
    >>> config.debug.graph_dump.type = "py"
    >>> config.debug.graph_dump.type.value
    'py'
    >>> CompilerConfig() == CompilerConfig()
    True
    """

    def __init__(self) -> None:
        super().__init__(_members(""))
        # torchair had it in both places
        single = self.ge_config.enable_single_stream
        vars(self.experimental_config)["enable_single_stream"] = single
        self.experimental_config._names.append("enable_single_stream")

    def as_dict(self, mode: str = "max-autotune") -> tuple[dict[str, str], dict[str, str]]:
        """The options in the words of the graph engine they were made for: of one graph, and of all."""
        found: dict[str, dict[str, str]] = {"local": {}, "global": {}}
        options = dict(self.leaves())
        dumping = bool(options["dump_config.enable_dump"])
        for row in ROWS:
            option = options[row.path]
            value = row.shown.get(option.raw) if row.shown else option.value
            if not row.key or value in (None, "") or (row.path.startswith("dump_config.") and not dumping):
                continue
            where, _, key = row.key.partition(":")
            found[where][key] = value
        return found["local"], found["global"]

    def set_options(self) -> dict[str, Any]:
        """What is other than by default."""
        return {path: option.raw for path, option in self.leaves() if option.is_set}


# said by get_npu_backend: options that the other mode does not look at, with the values that matter (none: any)
_ONLY_CAPTURED: dict[str, tuple[Any, ...]] = {
    "debug.aclgraph.disable_reinplace_input_mutated_ops_pass": (True,),
    "debug.aclgraph.disable_reinplace_inplaceable_ops_pass": (True,),
    "experimental_config.aclgraph._aclnn_static_shape_kernel": (True,),
    "experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir": (),
    "aclgraph_config.use_custom_pool": (),
}
_ONLY_GRAPH: dict[str, tuple[Any, ...]] = {
    "inference_config.dynamic_gears_merge_policy": ("product",),
    "debug.fx_summary.type": ("csv",),
    "dump_config.enable_dump": (True,),
    "ge_config.export_compile_stat": ("0", "1"),
    "export.experimental.auto_atc_config_generated": (True,),
    "export.experimental.enable_record_nn_module_stack": (True,),
    "ge_config.enable_single_stream": (True,),
    "ge_config.oo_level": ("O1",),
    "ge_config.oo_constant_folding": (True, False),
    "ge_config.oo_dead_code_elimination": (True, False),
    "experimental_config.topology_sorting_strategy": ("BFS", "RDFS", "StableRDFS"),
    "experimental_config.cc_parallel_enable": (True,),
    "experimental_config.enable_ref_data": (True,),
    "experimental_config.tiling_schedule_optimize": (True,),
    "experimental_config.enable_view_optimize": (False,),
    "fusion_config.fusion_switch_file": (),
    "experimental_config.static_model_ops_lower_limit": (),
    "ge_config.aicore_num": (),
    "ge_config.optimization_switch": (),
}


def warn_incompatible(config: CompilerConfig) -> None:
    """One warning with every option that the mode does not look at."""
    mode = config.mode.value
    captured = mode != "max-autotune"
    options = dict(config.leaves())
    found = []
    for path, values in (_ONLY_GRAPH if captured else _ONLY_CAPTURED).items():
        option = options[path]
        if option.is_set and (not values or option.raw in values):
            found.append(f"config.{path}:{option.raw}")
    if found:
        more = ", set_dim_gears, dynamo_export, scope, npu_print" if captured else ""
        text = "The following torchair config or properties may not take effect or report error in"
        warnings.warn(f"{text} {mode} mode: {', '.join(found)}{more}", UserWarning, stacklevel=3)


def report_without_effect(config: CompilerConfig) -> None:
    """Each option that was set and does nothing here is named once."""
    changed = config.set_options()
    for row in ROWS:
        if not row.works and row.path in changed:
            directories.say_once(f"torchair:{row.path}", f"config.{row.path} has no effect here")
