"""CompilerConfig: every option with its default, what it takes, what it says when it is given something else."""
import copy
import re
import subprocess
import sys
import warnings
from typing import Any

import pytest
from clean_environment import environment

from tensortap.compat import torchair
from tensortap.compat.torchair._config import ROWS
from tensortap.compat.torchair._npugraph_ex import FlatConfig, with_options

TAIL = r"\n\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d \(PID:\d+, Device:-1, RankID:-1\) ERR03005 GRAPH internal error$"


def set_path(config: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        config = getattr(config, parent)
    setattr(config, last, value)


def get_path(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = getattr(config, part)
    return config


# from the documents: path, default, a value that is taken, one that is not
DOCUMENTED = [
    ("mode", "max-autotune", "npugraph_ex", "fast"),
    ("debug.graph_dump.type", None, "pbtxt", "svg"),
    ("debug.graph_dump.dtype", None, "py", "json"),
    ("debug.data_dump.type", None, "npy", "bin"),
    ("debug.data_dump.filter", None, len, 3),
    ("debug.fx_summary.type", None, "csv", "xls"),
    ("debug.fx_summary.skip_compile", True, False, "no"),
    ("debug.run_eagerly", False, True, "yes"),
    ("debug.aclgraph.static_capture_size_limit", 64, 1, 0),
    ("aoe_config.aoe_mode", None, "2", "1"),
    ("aoe_config.work_path", "./", "/", "/not/there"),
    ("dump_config.enable_dump", False, True, 2),
    ("dump_config.dump_mode", "all", "input", "none"),
    ("dump_config.quant_dumpable", False, True, "x"),
    ("dump_config.dump_step", "", "0|1|2-5|6", "a"),
    ("dump_config.dump_layer", "", "Mul_1 Add1", "a;b"),
    ("dump_config.dump_data", "tensor", "stats", "both"),
    ("fusion_config.fusion_switch_file", None, __file__, "/not/there"),
    ("experimental_config.cc_parallel_enable", False, True, "x"),
    ("experimental_config.keep_inference_input_mutation", True, False, "x"),
    ("experimental_config.keep_inference_input_mutations", True, False, "x"),
    ("experimental_config.memory_efficiency", False, True, None),
    ("experimental_config.separate_atomic_clean", True, False, "x"),
    ("experimental_config.frozen_parameter", False, True, "x"),
    ("experimental_config.static_model_ops_lower_limit", None, 0, -2),
    ("experimental_config.jit_compile", "auto", "auto", "on"),
    ("experimental_config.npu_fx_pass", False, True, "x"),
    ("experimental_config.aot_config_enable_joint_graph", False, True, "x"),
    ("experimental_config.topology_sorting_strategy", "DFS", "StableRDFS", "XFS"),
    ("experimental_config.enable_single_stream", False, True, "x"),
    ("ge_config.enable_single_stream", False, True, "x"),
    ("experimental_config.enable_ref_data", False, True, "x"),
    ("export.experimental.enable_record_nn_module_stack", False, True, "x"),
    ("export.experimental.auto_atc_config_generated", False, True, "x"),
    ("inference_config.dynamic_gears_merge_policy", "zip", "product", "x"),
    ("ge_config.oo_level", "O3", "O1", "O2"),
    ("ge_config.export_compile_stat", "2", "0", "3"),
]


@pytest.mark.parametrize(("path", "default", "good", "bad"), DOCUMENTED, ids=[each[0] for each in DOCUMENTED])
def test_documented_option(path: str, default: Any, good: Any, bad: Any) -> None:
    config = torchair.CompilerConfig()
    assert get_path(config, path).raw == default
    with pytest.raises((ValueError, FileNotFoundError), match=TAIL):
        set_path(config, path, bad)
    assert get_path(config, path).raw == default and config == torchair.CompilerConfig()
    set_path(config, path, good)
    assert get_path(config, path).raw == good
    assert (config == torchair.CompilerConfig()) == (good == default)


def test_every_row_has_a_default_that_it_takes() -> None:
    config = torchair.CompilerConfig()
    for row in ROWS:
        assert get_path(config, row.path).is_set is False
    assert len({row.path for row in ROWS}) == len(ROWS) and len(list(config.leaves())) == len(ROWS) + 1


def test_values_are_text() -> None:
    config = torchair.CompilerConfig()
    assert config.debug.graph_dump.type.value is None and not config.debug.graph_dump.type
    assert config.debug.fx_summary.skip_compile.value == "1" and config.debug.run_eagerly.value == "0"
    assert config.debug.aclgraph.static_capture_size_limit.value == "64" and config.mode.value == "max-autotune"
    config.debug.graph_dump.type = ["txt", "py"]
    assert config.debug.graph_dump.type.value == "txt,py"


def test_two_spellings_are_one_option() -> None:
    config = torchair.CompilerConfig()
    config.debug.graph_dump.dtype = "txt"
    config.experimental_config.keep_inference_input_mutation = False
    config.experimental_config.enable_single_stream = True
    assert config.debug.graph_dump.type.value == "txt" and config.ge_config.enable_single_stream.value == "1"
    assert not config.experimental_config.keep_inference_input_mutations


MESSAGES = [
    ("debug.fx_summary.typ", "csv", ValueError, r"_FxSummaryConfig has no option typ, all options \['type', 'skip_compile'\]"),
    ("debug.data_dump.type", "bin", ValueError, r"Value 'bin' \(type: <class 'str'>\) not in optional list \[None, 'npy'\]"),
    ("debug.aclgraph.static_capture_size_limit", "1", ValueError, "Please set integer type, but got <class 'str'>"),
    ("debug.aclgraph.static_capture_size_limit", 0, ValueError, r"Please set value in \[1, 9223372036854775807\], 0 is out of range\."),
    ("dump_config.dump_path", "/no", FileNotFoundError, "Please set legal dir path, /no is not found or is not a file directory!"),
    ("fusion_config.fusion_switch_file", "/no", FileNotFoundError, "Please set legal file path, /no is not found or is not a file!"),
    ("dump_config.dump_config_path", __file__, FileNotFoundError, "is not '.json' file!"),
    ("dump_config.dump_step", "x", ValueError, r"Please set legal regex value format match .*, x is Illegal format, correct example:0\|1\|2-5\|6\."),
]


@pytest.mark.parametrize(("path", "value", "error", "text"), MESSAGES)
def test_messages(path: str, value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        set_path(torchair.CompilerConfig(), path, value)
    assert re.search(TAIL, str(raised.value))


def test_a_group_cannot_be_replaced_by_a_value() -> None:
    config = torchair.CompilerConfig()
    with pytest.raises(ValueError, match="CompilerConfig has a group debug"):
        config.debug = "py"
    with pytest.raises(ValueError, match="CompilerConfig has no option debuk"):
        config.debuk = 1


def test_words_of_the_engine_it_was_made_for() -> None:
    config = torchair.CompilerConfig()
    local, everywhere = config.as_dict()
    assert local["ge.topoSortingMode"] == "1" and local["ge.featureBaseRefreshable"] == "0" and local["ge.jit_compile"] == "2"
    assert everywhere["ge.exec.enableEngineParallel"] == "0" and everywhere["ge.enableSingleStream"] == "false"
    assert not any("dump" in key.lower() for key in everywhere)
    config.dump_config.enable_dump = True
    config.experimental_config.topology_sorting_strategy = "RDFS"
    local, everywhere = config.as_dict()
    assert everywhere["ge.exec.enableDump"] == "1" and everywhere["ge.exec.dumpMode"] == "all" and local["ge.topoSortingMode"] == "2"


def test_copies_are_apart() -> None:
    config = torchair.CompilerConfig()
    other = copy.deepcopy(config)
    other.debug.run_eagerly = True
    assert not config.debug.run_eagerly and config != other


def test_warns_about_options_of_the_other_mode() -> None:
    config = torchair.CompilerConfig()
    config.mode = "npugraph_ex"
    config.ge_config.oo_level = "O1"
    config.debug.fx_summary.type = "csv"
    with pytest.warns(UserWarning, match=r"may not take effect or report error in npugraph_ex mode: config\.debug\.fx_summary\.type:csv, config\.ge_config\.oo_level:O1, set_dim_gears, dynamo_export, scope, npu_print"):
        torchair.get_npu_backend(compiler_config=config)
    config = torchair.CompilerConfig()
    config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass = True
    with pytest.warns(UserWarning, match=r"in max-autotune mode: config\.debug\.aclgraph\.disable_reinplace_inplaceable_ops_pass:True$"):
        torchair.get_npu_backend(compiler_config=config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torchair.get_npu_backend()
    with pytest.raises(TypeError, match=r"compiler_config is a torchair.CompilerConfig or None, not dict"):
        torchair.get_npu_backend(compiler_config={})  # type: ignore[arg-type]


def run(text: str, **env: str) -> "subprocess.CompletedProcess[str]":
    begin = "import tensortap.compat; tensortap.compat.install()\n"
    return subprocess.run([sys.executable, "-c", begin + text], capture_output=True, text=True, timeout=300, env=environment(**env))


@pytest.mark.parametrize("path", ["aoe_config.aoe_mode", "experimental_config.cc_parallel_enable", "dump_config.quant_dumpable",
                                  "experimental_config.separate_atomic_clean", "experimental_config.enable_single_stream",
                                  "experimental_config.static_model_ops_lower_limit", "export.experimental.auto_atc_config_generated"])
def test_what_has_no_effect_is_said_once(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    from tensortap._record import directories

    directories._said.clear()
    value = {"aoe_config.aoe_mode": "2", "experimental_config.separate_atomic_clean": False, "experimental_config.static_model_ops_lower_limit": 3}.get(path, True)
    config = torchair.CompilerConfig()
    set_path(config, path, value)
    capfd.readouterr()
    torchair.get_npu_backend(compiler_config=config)
    torchair.get_npu_backend(compiler_config=config)
    said = capfd.readouterr().err
    assert said.count("has no effect here") == 1 and path.split(".")[-1] in said


def test_flat_options() -> None:
    config = with_options(torchair.CompilerConfig(), {"inplace_pass": False, "capture_limit": 5, "clone_output": True})
    assert config.mode.value == "npugraph_ex" and config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass
    assert config.debug.aclgraph.static_capture_size_limit.raw == 5 and config.debug.aclgraph.enable_output_clone
    with pytest.raises(ValueError, match=r"Invalid option 'x', allowed options: \['_vllm_aclnn"):
        with_options(torchair.CompilerConfig(), {"x": 1})
    flat = FlatConfig()
    flat.force_eager = True
    assert flat.force_eager.value is True and flat.to_config().debug.run_eagerly and not FlatConfig().force_eager
    with pytest.raises(ValueError, match=r"Invalid option 'y'. The 'CompilerConfig' object does not have attribute 'y'. Supported attributes are: \["):
        flat.y = 1


LOGS = """
import torchair
torchair.logger.debug("d"); torchair.logger.info("i"); torchair.logger.warning("w"); torchair.logger.event("e %d", 1); torchair.logger.error("x")
for _ in range(3):
    torchair.logger.warning_once("once %s", "a")
"""


@pytest.mark.parametrize(("level", "shown"), [("0", "d i w e1 x o"), ("1", "i w e1 x o"), ("2", "w e1 x o"), ("3", "x"), ("4", "e1 x"), (None, "x")])
def test_log_levels(level: str | None, shown: str) -> None:
    done = run(LOGS, **({} if level is None else {"TNG_LOG_LEVEL": level}))
    assert done.returncode == 0, done.stderr
    texts = [line.rsplit("]", 1)[1].split(" ", 1)[1] for line in done.stdout.splitlines()]
    assert " ".join(text.replace("e 1", "e1").replace("once a", "o") for text in texts) == shown
    form = r"^\[(DEBUG|INFO|WARNING|EVENT|ERROR)\] TORCHAIR\(\d+,python[\d.]*\):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\.\d{3} \[<string>:\d+\]\d+ "
    for line in done.stdout.splitlines():
        assert re.match(form, line), line


def test_a_wrong_log_level_is_said() -> None:
    done = run("import torchair\nprint(torchair.logger.level)", TNG_LOG_LEVEL="7")
    assert done.stdout == "40\n" and "Value of TNG_LOG_LEVEL should be in {0, 1, 2, 3, 4}, but got 7" in done.stderr


def test_details_of_the_library_come_with_the_level() -> None:
    text = "import torchair\nfrom tensortap import _core\n_core.say_detail('loading')"
    assert "loading" not in run(text, TNG_LOG_LEVEL="2").stderr
    assert re.search(r"^\[INFO\] TORCHAIR\(\d+,[\w.]+\):\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3} \[tensortap\]\d+ loading$", run(text, TNG_LOG_LEVEL="1").stderr, re.M)
