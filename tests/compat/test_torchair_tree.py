"""The names that people who build torchair type, in the tree compat/torchair, and the builders made from a C++ header."""
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest
from clean_environment import environment

from tensortap.compat.torchair import codegen

ROOT = pathlib.Path(__file__).parents[2]
PRINTED = ROOT / "examples/compat"


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    where = tmp_path / "torchair"
    ignored = shutil.ignore_patterns("build", "output", "python_path", "auto_generated*", "__pycache__")
    shutil.copytree(ROOT / "compat/torchair", where, ignore=ignored)
    return where


def run(where: pathlib.Path, *command: str, given: str = "", check: bool = True, **env: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(command, cwd=where, input=given, capture_output=True, text=True, timeout=300, env=environment(**env))
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def test_configure_asks_and_can_be_quiet(tree: pathlib.Path) -> None:
    asked = run(tree, "bash", "./configure", given=f"/no/such/python\n{sys.executable}\n\n")
    assert asked.stdout.count("Please specify the location of python with available torch 2.1.x installed.") == 2
    assert "Invalid python path: /no/such/python" in asked.stdout and "(You can make this quiet by set env [ASCEND_SDK_PATH]):" in asked.stdout
    assert (tree / "tools/python_path").read_text() == sys.executable + "\n"
    quiet = run(tree, "bash", "./configure", TARGET_PYTHON_PATH=sys.executable, NO_ASCEND_SDK="1")
    assert quiet.stdout == "Configuration finished\n"
    done = run(tree, "bash", "./configure", check=False, TARGET_PYTHON_PATH="/no/such/python")
    assert done.returncode == 1 and "configure: no answer" in done.stderr


def test_make_gives_a_wheel_that_works(tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run(tree, "bash", "./configure", TARGET_PYTHON_PATH=sys.executable)
    (tree / "build").mkdir()
    run(tree / "build", "cmake", "..")
    run(tree / "build", "make", "torchair", "-j8")
    (wheel,) = (tree / "build/dist/dist").iterdir()
    import tensortap

    assert wheel.name == f"torchair-{tensortap.__version__}-py3-none-any.whl"
    text = "import torchair, torchair.ge, sys\nfrom torchair.ge_concrete_graph.ge_graph import Tensor\nassert Tensor is torchair.ge.Tensor\nprint(torchair.CompilerConfig().mode.value)"
    before = os.environ.get("PYTHONPATH", "")
    done = run(tmp_path, sys.executable, "-c", text, PYTHONPATH=f"{wheel}{os.pathsep}{before}")
    assert done.stdout == "max-autotune\n"
    names = run(tmp_path, sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", "site", "--disable-pip-version-check", str(wheel))
    assert "Successfully installed torchair" in names.stdout and (tmp_path / "site/torchair/__init__.py").is_file()


def test_build_script(tree: pathlib.Path) -> None:
    helped = run(tree, "./build.sh", "-h").stdout
    assert all(f"  -{letter}" in helped for letter in "hciusjvg")
    run(tree, "./build.sh", "-c", "-j2", "-v", "-g", "/usr/bin", TARGET_PYTHON_PATH=sys.executable)
    assert [path.suffix for path in (tree / "output").iterdir()] == [".whl"]
    assert run(tree, "./build.sh", "-x", check=False).returncode == 2


def test_examples_and_smoke_test(tree: pathlib.Path) -> None:
    assert run(tree, "bash", "-c", f"source tools/env.sh && {sys.executable} examples/example.py").stdout == "compiled and eager agree\n"
    for name in ("example_custom_op_register_in_one_file", "example_use_import_new_custom_op"):
        assert run(tree, sys.executable, f"examples/example_custom_op_register/{name}.py").stdout == "custom_op agrees with add\n"
    done = run(tree, sys.executable, "smoke/converter_test.py", "aten.abs")
    assert done.stdout.startswith("[RUN] aten.abs.default: ") and done.stdout.endswith("Test result: All testcases passed\n")


def test_the_chapter_on_custom_operators(tree: pathlib.Path, script: Any) -> None:
    run(tree, "bash", "./configure", TARGET_PYTHON_PATH=sys.executable)
    shutil.copy(PRINTED / "004_custom_reg_op.h", tree / "codegen/custom_op/custom_reg_op.h")
    (tree / "build").mkdir()
    run(tree / "build", "cmake", "..")
    run(tree / "build", "make", "generate_ge_raw_custom_ops")
    made = (tree / "codegen/custom_op/auto_generated_ge_raw_custom_ops.py").read_text()
    steps = [(PRINTED / "004_custom_op_1.py").read_text(), (PRINTED / "004_custom_op_2.py").read_text()]
    steps += ["from torchair.ge_concrete_graph.ge_converter.converter_utils import *\n", made, (PRINTED / "004_custom_op_4.py").read_text()]
    use = "import torchair\nrun = torch.compile(torch.ops.npu_define.custom_op, backend=torchair.get_npu_backend(), fullgraph=True)\n"
    use += "x, y = torch.randn(3), torch.randn(3)\nassert torch.equal(run(x, y), x + y)\nprint('fine')\n"
    assert script("\n".join(steps) + use).stdout == "fine\n"


HEADER = """
#include "graph/operator_reg.h"
namespace ge {
/* REG_OP(NotThis) */
REG_OP(Clip)  // a remark
    .INPUT(x, TensorType({DT_FLOAT}))
    .OPTIONAL_INPUT(lambda, TensorType::ALL())
    .DYNAMIC_INPUT(more, TensorType::ALL())
    .REQUIRED_ATTR(low, Float)
    .ATTR(axes, ListInt, {0, -1})
    .ATTR(x, Bool, true)
    .ATTR(mode, String, "fast")
    .ATTR(dtype, Type, DT_FLOAT16)
    .ATTR(scale, Float, 1.5f)
    .DYNAMIC_OUTPUT(y, TensorType({DT_FLOAT}))
    .OP_END_FACTORY_REG(Clip)
REG_OP(Data).INPUT(x, TensorType::ALL()).OUTPUT(y, TensorType::ALL()).OP_END_FACTORY_REG(Data)
}
"""


def test_builders_of_a_header() -> None:
    text = codegen.generate(HEADER)
    assert "# Summary: total 2, generated 1, skipped 1" in text and "# IR Data skipped as Deformed prototype" in text
    wanted = (
        "def Clip(x: Tensor, lambda_changed_as_is_python_key: Optional[Tensor], more: List[Tensor], *, size_of_y: int, low: float, "
        "axes: List[int] = [0, -1], x_changed_as_duplicate_with_input: bool = True, mode: str = \"fast\", dtype: int = DataType.DT_FLOAT16, "
        "scale: float = 1.5, node_name: Optional[str] = None):"
    )
    assert wanted in text
    compile(text, "generated", "exec")


@pytest.mark.parametrize(("text", "why"), [
    ("int x;", "there is no REG_OP"),
    ("REG_OP(A).INPUT(x, T).OP_END_FACTORY_REG(B)", r"REG_OP\(A\) ends in OP_END_FACTORY_REG\(B\)"),
    ("REG_OP(A).FROB(x).OP_END_FACTORY_REG(A)", r"A: \.FROB\(\.\.\.\) is not known"),
    ("REG_OP(A).ATTR(x, Tree, 1).OP_END_FACTORY_REG(A)", "the attribute x has the type Tree, which is not known"),
])
def test_bad_headers_are_named(text: str, why: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=why):
        codegen.parse(text)
    (tmp_path / "a.h").write_text(text)
    assert codegen.main([str(tmp_path / "a.h"), str(tmp_path / "out.py")]) == 1 and not (tmp_path / "out.py").exists()
    assert "codegen: " in capsys.readouterr().err
