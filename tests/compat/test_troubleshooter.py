"""troubleshooter.save, save_grad and save_convert."""
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

RunScript = Callable[..., Any]
HEAD = "import torch\nimport troubleshooter as ts\n"


def names(where: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(where)) for path in where.rglob("*.npy"))


def test_names_in_order_of_execution(tmp_path: pathlib.Path, script: RunScript) -> None:
    script(HEAD + """
a = torch.ones(2, requires_grad=True); b = a * 2
a = ts.save_grad("d/a", a); b = ts.save_grad("e/b.npy", b, suffix="g")
ts.save("d/x.npy", a); ts.save("n", {"k": [a, None, b], "z": (a,)}, suffix="torch")
(a.sum() + b.sum() * 3).backward()
ts.migrator.save("h", torch.ones(1).bfloat16())
""")
    assert names(tmp_path) == ["1_n.k.0_torch.npy", "2_n.k.2_torch.npy", "3_n.z.0_torch.npy", "6_h.npy", "d/0_x.npy", "d/5_a_backward.npy", "e/4_b_g.npy"]
    assert np.load(tmp_path / "e/4_b_g.npy").tolist() == [3, 3] and np.load(tmp_path / "6_h.npy").dtype == np.float32


def test_print(tmp_path: pathlib.Path, script: RunScript) -> None:
    done = script(HEAD + """
x = torch.ones(2, requires_grad=True)
ts.save("d/x", [x.detach(), 3], output_mode="print")
ts.save_grad("d/x", x, output_mode="print").sum().backward()
""")
    assert done.stdout == "_TS_SAVE_NAME:x.0 tensor([1., 1.])\n_TS_SAVE_NAME:x.1 3\n_TS_SAVE_NAME:x_backward tensor([1., 1.])\n" and not names(tmp_path)


@pytest.mark.parametrize(("call", "kind"), [("ts.save('x', torch.ones(1), output_mode='x')", "ValueError"), ("ts.save('d/', torch.ones(1))", "ValueError"),
                                            ("ts.save(3, torch.ones(1))", "TypeError"), ("ts.save('x', [3])", "TypeError"), ("ts.save_grad('x', 3)", "TypeError"),
                                            ("ts.widget.save_convert('missing', 'out')", "ValueError")])  # fmt: skip
def test_mistakes(script: RunScript, call: str, kind: str) -> None:
    assert script(HEAD + call, check=False).stderr.strip().splitlines()[-1].startswith(kind)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(tmp_path: pathlib.Path, script: RunScript, backend: str) -> None:
    script(HEAD + f"""
def f(x):
    y = ts.save_grad("y", x * 2)
    ts.save("v", [y])
    return (y * 3).sum()
g = torch.compile(f, backend="{backend}", fullgraph=True)
for n in range(2):
    g(torch.ones(2, requires_grad=True)).backward()
""")
    assert names(tmp_path) == ["0_v.0.npy", "1_y_backward.npy", "2_v.0.npy", "3_y_backward.npy"]
    assert np.load(tmp_path / "1_y_backward.npy").tolist() == [3, 3]


def test_save_convert(tmp_path: pathlib.Path, script: RunScript) -> None:
    def field(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2, len(body)]) + body

    tensor = field(2, b"\x08\x02" + field(2, b"Float32") + field(3, np.array([1, 2], np.float32).tobytes()))
    (tmp_path / "print").write_bytes(field(1, field(1, b"_TS_SAVE_NAME:add")) + field(1, tensor))
    script(HEAD + "ts.widget.save_convert('print', 'out')")
    assert names(tmp_path) == ["out/add_float32_0.npy"] and np.load(tmp_path / "out/add_float32_0.npy").tolist() == [1, 2]


def test_no_name_is_a_file_here(tmp_path: pathlib.Path, script: RunScript) -> None:
    """Not one beside this directory, under its name."""
    before = sorted(tmp_path.parent.iterdir())
    script(HEAD + """
ts.save("", torch.ones(1)); ts.save("", [torch.ones(1)], suffix="s"); ts.save("./x", torch.ones(1))
""")
    assert names(tmp_path) == ["0_.npy", "1_.0_s.npy", "2_x.npy"]
    assert [path for path in sorted(tmp_path.parent.iterdir()) if path not in before and path.suffix == ".npy"] == []
