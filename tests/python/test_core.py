"""The Python package: what is saved comes back, from every kind of value, thread, process and environment."""

from __future__ import annotations

import collections
import dataclasses
import doctest
import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensortap as tap
from tensortap._record import reading, recording, values
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A small ring, so that opening is quick; children of the tests inherit it."""
    monkeypatch.setenv("TENSORTAP_RING_BYTES", "16M")
    yield
    tap.close()


def saved(tmp_path: Path, value: Any, **options: Any) -> list[tap.Record]:
    """The records of one saved value."""
    with tap.record(tmp_path / "run"):
        tap.save(value, "x", **options)
    with tap.open(tmp_path / "run") as run:
        return list(run)


def python(code: str, *, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TENSORTAP_LANG": "en", **(env or {})},
        **options,
    )


NUMPY_DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
TORCH_DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
]


class TestArrays:
    @pytest.mark.parametrize("dtype", NUMPY_DTYPES)
    def test_every_dtype_of_numpy(self, tmp_path: Path, dtype: str) -> None:
        array = np.arange(-3, 21).reshape(4, 6).astype(dtype)
        with tap.record(tmp_path / "run"):
            tap.save(array, "x")
        with tap.open(tmp_path / "run") as run:
            back = run["x"][0].numpy()
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert back.tobytes() == array.tobytes()
        assert not back.flags.writeable

    @pytest.mark.filterwarnings("ignore:the matrix subclass")
    @pytest.mark.parametrize(
        "view",
        [
            lambda a: a.T,
            lambda a: a[::2, ::-1],
            lambda a: a[1:, 2:3],
            lambda a: a[0, 0],
            lambda a: a[:0],
            lambda a: np.broadcast_to(a[0], (3, 6)),
            lambda a: a.astype(">f8"),
            lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view("V8").view(np.float64),
            lambda a: np.rec.fromarrays([a[0], a[1]], names="p,q")["q"],
            lambda a: np.matrix(a),
            lambda a: np.array(7.5),
        ],
        ids=[
            "T",
            "negative",
            "column",
            "scalar",
            "empty",
            "broadcast",
            "swapped",
            "misaligned",
            "field",
            "matrix",
            "zerodim",
        ],
    )
    def test_any_strides_order_and_alignment(self, tmp_path: Path, view: Any) -> None:
        array = view(np.linspace(-1, 1, 24).reshape(4, 6))
        with tap.record(tmp_path / "run"):
            tap.save(array, "x")
        with tap.open(tmp_path / "run") as run:
            np.testing.assert_array_equal(run["x"][0].numpy(), np.asarray(array))

    def test_read_only_arrays(self, tmp_path: Path) -> None:
        array = np.arange(4.0)
        array.flags.writeable = False
        (record,) = saved(tmp_path, array)
        assert record.stats is not None
        assert record.stats.max == 3.0

    def test_dtypes_numpy_has_no_letter_for(self, tmp_path: Path) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        names = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
        arrays = {name: np.array([1, 2, 4], dtype=getattr(ml_dtypes, name)) for name in names}
        with tap.record(tmp_path / "run"):
            for name, array in arrays.items():
                tap.save(array, name)
        with tap.open(tmp_path / "run") as run:
            for name, array in arrays.items():
                assert run[name][0].dtype == name
                assert run[name][0].numpy().dtype == array.dtype
                np.testing.assert_array_equal(run[name][0].numpy().astype(np.float32), [1, 2, 4])

    def test_types_we_have_not_are_widened(self, tmp_path: Path) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        with tap.record(tmp_path / "run"):
            tap.save(np.array([1, -2], dtype=ml_dtypes.int4), "int4")
            tap.save(np.array([1, 2], dtype=ml_dtypes.float8_e4m3b11fnuz), "b11")
            tap.save(np.array([1.5], dtype=np.longdouble), "long")
            tap.save(np.array(["a", "b"]), "texts")
        with tap.open(tmp_path / "run") as run:
            assert [run[n][0].dtype for n in ("int4", "b11", "long")] == ["float32", "float32", "float64"]
            assert run["int4"][0].numpy().tolist() == [1, -2]
            assert [r.value() for r in run["texts"]] == ["a", "b"]

    def test_without_ml_dtypes_they_are_float32(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "x")
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with tap.open(tmp_path / "run") as run:
            back = run["x"][0].numpy()
        assert back.dtype == np.float32
        assert back.tolist() == [1.5, -2.0]

    def test_the_array_outlives_the_run(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(np.arange(100000), "x")
        with tap.open(tmp_path / "run") as run:
            array = run["x"][0].numpy()
        del run
        gc.collect()
        assert array.sum() == 100000 * 99999 // 2

    def test_statistics_against_numpy(self, tmp_path: Path) -> None:
        array = np.array([1.0, -2.0, 0.0, np.nan, np.inf, -np.inf, 3.5])
        (record,) = saved(tmp_path, array)
        stats, finite = record.stats, array[np.isfinite(array)]
        assert stats is not None
        assert (stats.count, stats.nan, stats.pos_inf, stats.neg_inf, stats.zero) == (7, 1, 1, 1, 1)
        assert (stats.min, stats.max) == (-np.inf, np.inf)
        assert stats.mean == pytest.approx(finite.mean())
        assert stats.norm == pytest.approx(np.linalg.norm(finite))

    def test_integers_have_exact_statistics(self, tmp_path: Path) -> None:
        (record,) = saved(tmp_path, np.array([2**63, 2**64 - 1], dtype=np.uint64))
        assert record.stats is not None
        assert (record.stats.min, record.stats.max) == (2**63, 2**64 - 1)


class TestTensors:
    @pytest.mark.filterwarnings("ignore:ComplexHalf")
    @pytest.mark.parametrize("name", TORCH_DTYPES)
    @pytest.mark.parametrize("copy", [True, False])
    def test_every_dtype_of_torch(self, tmp_path: Path, name: str, copy: bool) -> None:
        dtype = getattr(torch, name)
        raw = torch.arange(64, dtype=torch.uint8) % 2 if name == "bool" else torch.arange(64, dtype=torch.uint8)
        tensor = raw.view(dtype).reshape(2, -1)
        with tap.record(tmp_path / "run"):
            tap.save(tensor, "x")
        with tap.open(tmp_path / "run") as run:
            record = run["x"][0]
            back = record.torch(copy=copy)
        assert record.dtype == name
        assert back.dtype == dtype
        assert back.shape == tensor.shape
        assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (lambda t: t.t(), lambda t: t.t()),
            (lambda t: t[:, ::3], lambda t: t[:, ::3]),
            (lambda t: t.expand(2, 4, 6), lambda t: t.expand(2, 4, 6)),
            (lambda t: t[2, 3], lambda t: t[2, 3]),
            (lambda t: t[:0], lambda t: t[:0]),
            (lambda t: t.clone().requires_grad_(), lambda t: t),
            (lambda t: torch.nn.Parameter(t), lambda t: t),
            (lambda t: torch.complex(t, t).conj(), lambda t: torch.complex(t, -t)),
            (lambda t: torch.complex(t, t).conj().imag, lambda t: -t),
        ],
        ids=["t", "strided", "expand", "zerodim", "empty", "grad", "parameter", "conj", "neg"],
    )
    def test_views(self, tmp_path: Path, make: Any, expected: Any) -> None:
        tensor = torch.arange(24.0).reshape(4, 6)
        with tap.record(tmp_path / "run"):
            tap.save(make(tensor), "x")
        with tap.open(tmp_path / "run") as run:
            assert torch.equal(run["x"][0].torch(), expected(tensor).contiguous())

    def test_requires_grad_is_noted(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(torch.ones(2, requires_grad=True), "yes")
            tap.save([torch.ones(2, requires_grad=True)], "nested")
            tap.save(torch.ones(2), "no")
        with tap.open(tmp_path / "run") as run:
            assert [record.flags & 1 for record in run] == [1, 1, 0]

    def test_without_the_exchange_table(self, tmp_path: Path) -> None:
        """An older torch has only __dlpack__; a subprocess hides the table before the type is first seen."""
        result = python(
            "import torch, tensortap as tap, sys\n"
            "import tensortap._record.values as v\n"
            "del torch.Tensor.__dlpack_c_exchange_api__\n"
            "assert not hasattr(torch.Tensor, '__dlpack_c_exchange_api__')\n"
            "with tap.record(sys.argv[1] if len(sys.argv) > 1 else 'run'):\n"
            "    tap.save(torch.arange(6.).reshape(2, 3).t().requires_grad_(), 'x')\n"
            "with tap.open('run') as run:\n"
            "    assert torch.equal(run['x'][0].torch(), torch.arange(6.).reshape(2, 3).t())\n"
            "    assert run['x'][0].flags & 1\n",
            cwd=tmp_path,
        )
        assert result.returncode == 0, result.stderr

    @pytest.mark.filterwarnings("ignore")
    def test_rarer_tensors(self, tmp_path: Path) -> None:
        class Sub(torch.Tensor):
            pass

        with tap.record(tmp_path / "run"):
            tap.save(torch.ones(2, 3, device="meta"), "meta")
            tap.save(torch.eye(2).to_sparse(), "coo")
            tap.save(torch.eye(2).to_sparse_csr(), "csr")
            tap.save(torch.ones(2).as_subclass(Sub), "sub")
        with tap.open(tmp_path / "run") as run:
            assert (run["meta"][0].value_type, run["meta"][0].shape) == ("meta", (2, 3))
            assert {record.path for record in run["coo"]} == {"indices", "values", "shape.0", "shape.1"}
            assert "crow_indices" in {record.path for record in run["csr"]}
            assert run["sub"][0].numpy().tolist() == [1, 1]
            assert run["sub"][0].type_name.endswith("Sub")


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Box:
    low: Any
    high: Any


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            False,
            0,
            -5,
            2**62,
            2**70,
            1.5,
            float("inf"),
            1 - 2j,
            "",
            "text",
            "汉字",
            b"",
            b"\0\xff",
            [],
            (),
            {},
        ],
        ids=repr,
    )
    def test_plain_values(self, tmp_path: Path, value: Any) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(value, "x")
        with tap.open(tmp_path / "run") as run:
            (record,) = run["x"]
            assert record.value() == value
            assert type(record.value()) is type(value)

    def test_nested_values(self, tmp_path: Path) -> None:
        value = {
            "list": [1, 2.5, (True, None)],
            3: {"point": Point(np.ones(2), torch.zeros(1)), "box": Box("a", [7])},
            "set": {2, 1},
            "order": collections.OrderedDict(a=1),
        }
        with tap.record(tmp_path / "run"):
            tap.save(value, "x")
        with tap.open(tmp_path / "run") as run:
            back = {record.path: record.value() for record in run}
        arrays = {path: leaf.tolist() for path, leaf in back.items() if isinstance(leaf, np.ndarray)}
        plain = {path: leaf for path, leaf in back.items() if not isinstance(leaf, np.ndarray)}
        assert arrays == {"3.point.x": [1.0, 1.0], "3.point.y": [0.0]}
        assert plain == {
            "list.0": 1,
            "list.1": 2.5,
            "list.2.0": True,
            "list.2.1": None,
            "3.box.low": "a",
            "3.box.high.0": 7,
            "set.0": 1,
            "set.1": 2,
            "order.a": 1,
        }

    def test_what_cannot_be_saved_is_said(self, tmp_path: Path) -> None:
        cycle: list[Any] = []
        cycle.append(cycle)
        with tap.record(tmp_path / "run"):
            tap.save(object(), "x")
            tap.save(cycle, "y")
            tap.save([object], "inside")
        with tap.open(tmp_path / "run") as run:
            assert run["inside"][0].value() == "<class 'object'>"
            x, y = run.verify().problems
        assert (x.name, y.name) == ("x", "y")
        assert "a object is nothing that can be recorded" in x.reason
        assert "does a container hold itself" in y.reason

    def test_arguments(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(1, "a", "grad", 7)
            tap.save(value=2, name="b", kind="param", module="net.1", node="n", graph="g")
            tap.save(3, "c", step=None, kind=None)
            for wrong in (
                lambda: tap.save(1),
                lambda: tap.save(1, 2),
                lambda: tap.save(1, "a", nothing=1),
                lambda: tap.save(1, "a", name="b"),
                lambda: tap.save(1, "a", module=5),
                lambda: tap.save(1, "a", "grad", 0, 0),
            ):
                with pytest.raises(TypeError):
                    wrong()
            with pytest.raises(ValueError, match="forward, grad"):
                tap.save(1, "a", kind="sideways")
        with tap.open(tmp_path / "run") as run:
            a, b, c = run
        assert (a.kind, a.step, b.kind, b.module, b.node, b.graph) == ("grad", 7, "param", "net.1", "n", "g")
        assert (c.kind, c.step, c.call) == ("forward", 0, 0)

    @pytest.mark.parametrize(
        "name", ["x" * 10000, "a/b/../c", "", "名字", "with\nline", "nul\0byte", "\ud800", "*[a]?\\", "a|b", "!a"]
    )
    def test_any_name(self, tmp_path: Path, name: str) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(1, name)
            tap.save(2, "another")
        with tap.open(tmp_path / "run") as run:
            record = next(iter(run))
            shown = name.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
            assert record.name == shown
            assert [r.seq for r in run[record.name]] == [record.seq]
            assert record.name in run
            assert "other" not in run

    def test_where_it_was_saved(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(1, "x")
            line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        with tap.open(tmp_path / "run") as run:
            assert (run["x"][0].source, run["x"][0].line) == (__file__, line)
        with tap.record(tmp_path / "other", source=False):
            tap.save(1, "x")
        with tap.open(tmp_path / "other") as run:
            assert (run["x"][0].source, run["x"][0].line) == ("", 0)

    def test_objects_are_let_go(self, tmp_path: Path) -> None:
        class Held(list[Any]):
            pass

        value = Held([np.ones(3), {"k": torch.ones(2)}])
        gone = weakref.ref(value)
        array = value[0]
        before = sys.getrefcount(array)
        with tap.record(tmp_path / "run"):
            for _ in range(100):
                tap.save(value, "x")
                tap.save(array, "a")
        assert sys.getrefcount(array) == before
        del value
        gc.collect()
        assert gone() is None


class TestRecorder:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        first = tap.record(tmp_path / "a")
        with pytest.raises(RuntimeError, match="close it first"):
            tap.record(tmp_path / "b")
        assert tap.recording()
        assert tap.current() is first
        tap.close()
        assert first.closed
        assert not tap.recording()
        with pytest.raises(tap.Error):
            first.save(1, "x")
        first.close()

    def test_modes(self, tmp_path: Path) -> None:
        for mode in ("new", "append", "append"):
            with tap.record(tmp_path / "run", mode=mode):
                tap.save(mode, "x")
        with pytest.raises(tap.Error) as caught:
            tap.record(tmp_path / "run")
        assert caught.value.args[1] == "E_EXISTS"
        with tap.open(tmp_path / "run") as run:
            assert [r.attempt for r in run] == [2]
            assert [r.attempt for r in run.query(attempt=-2)] == [0, 1, 2]
        with tap.record(tmp_path / "run", mode="replace"):
            tap.save(1, "x")
        with tap.open(tmp_path / "run") as run:
            assert len(list(run.query(attempt=-2))) == 1

    def test_filters(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run", names=["a*", "!ab"], steps=range(1, 3)) as recorder:
            for _ in range(4):
                for name in ("a", "ab", "b"):
                    tap.save(1, name)
                tap.step()
            assert recorder.current_step == 4
            assert recorder.numbers().saved == 2
            assert recorder.numbers().filtered == 10
        with tap.open(tmp_path / "run") as run:
            assert [(r.name, r.step) for r in run] == [("a", 1), ("a", 2)]

    @pytest.mark.parametrize(("keep", "stats", "payload"), [("both", 1, 1), ("tensor", 0, 1), ("stats", 1, 0)])
    def test_keep(self, tmp_path: Path, keep: Any, stats: int, payload: int) -> None:
        with tap.record(tmp_path / "run", keep=keep):
            tap.save(np.ones(4), "x")
        with tap.open(tmp_path / "run") as run:
            (record,) = run
        assert (record.stats is not None, record.payload_bytes > 0) == (bool(stats), bool(payload))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"keep": "all"},
            {"mode": "w"},
            {"full": "explode"},
            {"ring_bytes": "many"},
            {"steps": "x-y"},
            {"layout": "nope"},
        ],
        ids=lambda options: next(iter(options)),
    )
    def test_wrong_options_are_named(self, tmp_path: Path, wrong: dict[str, Any]) -> None:
        with pytest.raises((ValueError, tap.Error), match=next(iter(wrong))):
            tap.record(tmp_path / "run", **wrong)
        assert not tap.recording()

    def test_pause_step_and_declare(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run", first_step=10) as recorder:
            tap.declare("never")
            tap.save(1, "x")
            recorder.pause()
            tap.save(2, "x")
            assert not recorder.wants("x")
            recorder.resume()
            assert recorder.wants("x")
            tap.set_step(20)
            tap.save(3, "x")
            tap.flush()
        with tap.open(tmp_path / "run") as run:
            assert [(r.step, r.value()) for r in run] == [(10, 1), (20, 3)]
            assert "never" in {r.name for r in run.query(incomplete=True)}
            result = run.verify()
        assert [(problem.name, problem.is_loss) for problem in result.problems] == [("never", False)]
        assert result

    def test_forgotten_recorders_are_closed(self, tmp_path: Path) -> None:
        recorder = tap.Recorder(dir=str(tmp_path / "run"))
        recorder.save(1, "x")
        del recorder
        gc.collect()
        assert tap.verify(tmp_path / "run")

    def test_threads(self, tmp_path: Path) -> None:
        def work(number: int) -> None:
            for i in range(200):
                tap.save(np.full(300 * (i % 5), number), f"t{number}")
                tap.save(big, "big") if i % 50 == 0 else None

        big = np.zeros(1 << 19)  # large enough to run without the GIL
        with tap.record(tmp_path / "run"):
            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with tap.open(tmp_path / "run") as run:
            assert run.count("t?") == 800
            assert run.count("big") == 16
            assert all((r.numpy() == int(r.name[1:])).all() for r in run.query("t?"))
            assert run.verify()

    def test_closing_while_others_save(self, tmp_path: Path) -> None:
        stop = threading.Event()
        big = np.zeros(1 << 18)

        def work() -> None:
            while not stop.is_set():
                tap.save(big, "x")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i in range(10):
            tap.record(tmp_path / f"run{i}", ring_bytes="4M")
            tap.save(big, "own")
            tap.close()
        stop.set()
        for thread in threads:
            thread.join()
        for i in range(10):
            assert tap.verify(tmp_path / f"run{i}")


class TestProcess:
    def test_off_is_said_once(self) -> None:
        result = python("import tensortap as tap\nfor _ in range(3): tap.save(1, 'x')\nprint(tap.messages())")
        assert result.returncode == 0, result.stderr
        assert result.stderr.count("not recording; call tap.record(DIR) or set TENSORTAP_RECORD") == 1
        assert "not recording" in result.stdout

    def test_the_environment_turns_it_on(self, tmp_path: Path) -> None:
        result = python(
            "import tensortap as tap\nfor i in range(4): tap.save(i, 'x'); tap.save(i, 'y'); tap.step()",
            env={"TENSORTAP_RECORD": str(tmp_path / "run"), "TENSORTAP_NAMES": "x", "TENSORTAP_EVERY": "2"},
        )
        assert (result.returncode, result.stderr) == (0, "")
        with tap.open(tmp_path / "run") as run:
            assert [(r.name, r.step) for r in run] == [("x", 0), ("x", 2)]
            assert run.attempts()[0]["ended"] == "closed"

    def test_an_unusable_environment_lets_the_program_run(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        result = python(
            "import tensortap as tap\nfor i in range(3): tap.save(i, 'x')\nprint('done')",
            env={"TENSORTAP_RECORD": str(tmp_path / "file" / "run")},
        )
        assert (result.returncode, result.stdout) == (0, "done\n")
        assert result.stderr.count("TENSORTAP_RECORD") == 1

    @pytest.mark.parametrize(
        "end",
        ["", "raise SystemExit(3)", "1 / 0", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"],
    )
    def test_however_it_ends(self, tmp_path: Path, end: str) -> None:
        result = python(
            f"import os, numpy, tensortap as tap\ntap.record({str(tmp_path / 'run')!r})\n"
            f"for i in range(1000): tap.save(numpy.full(100, i), 'x')\n{end}"
        )
        assert result.returncode in (0, 1, 3, -signal.SIGKILL)
        subprocess.run([sys.executable, "-m", "tensortap", "wait", str(tmp_path / "run")], check=True, timeout=60)
        with tap.open(tmp_path / "run") as run:
            assert [int(r.numpy()[0]) for r in run["x"]] == list(range(1000))

    def test_forked_children_record_beside(self, tmp_path: Path) -> None:
        result = python(
            "import os, sys, tensortap as tap\n"
            f"tap.record({str(tmp_path / 'run')!r})\n"
            "tap.save('parent', 'x')\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    tap.save('child', 'x')\n"
            "    sys.exit()\n"
            "assert os.waitpid(pid, 0)[1] == 0\n"
            "tap.save('parent again', 'x')\n"
        )
        assert result.returncode == 0, result.stderr
        with tap.open(tmp_path / "run") as run:
            assert sorted((r.child != 0, r.value()) for r in run["x"]) == [
                (False, "parent"),
                (False, "parent again"),
                (True, "child"),
            ]
            assert run.verify()
            assert {attempt["ended"] for attempt in run.attempts()} == {"closed"}

    def test_workers_of_multiprocessing(self, tmp_path: Path) -> None:
        result = python(
            "import multiprocessing, tensortap as tap\n"
            "def work(n):\n"
            "    tap.save(n, 'x')\n"
            f"tap.record({str(tmp_path / 'run')!r})\n"
            "context = multiprocessing.get_context('fork')\n"
            "workers = [context.Process(target=work, args=(n,)) for n in range(3)]\n"
            "for w in workers: w.start()\n"
            "for w in workers: w.join()\n"
            "assert [w.exitcode for w in workers] == [0, 0, 0]\n"
        )
        assert result.returncode == 0, result.stderr
        subprocess.run([sys.executable, "-m", "tensortap", "wait", str(tmp_path / "run")], check=True, timeout=60)
        with tap.open(tmp_path / "run") as run:
            assert sorted(r.value() for r in run["x"]) == [0, 1, 2]
            assert run.verify()
            assert {attempt["ended"] for attempt in run.attempts()} == {"closed"}

    def test_nothing_holds_a_pipe_open(self, tmp_path: Path) -> None:
        """subprocess.run returns when the pipes close, so a writer that kept one would hang it."""
        code = f"import os, tensortap as tap\ntap.record({str(tmp_path / 'run')!r})\ntap.save(1, 'x')\nos._exit(0)"
        assert python(code).returncode == 0

    def test_the_wheel_is_whole(self) -> None:
        package = Path(tap.__file__).parent
        assert (package / "_core.abi3.so").is_file()
        assert os.access(package / "_bin" / "tensortap", os.X_OK)
        assert (package / "py.typed").is_file()
        result = subprocess.run(
            [sys.executable, "-m", "tensortap", "version"], capture_output=True, text=True, timeout=60
        )
        assert tap.__version__ in result.stdout
        header = (ROOT / "include/tensortap/tensortap.h").read_text()
        parts = [re.search(rf"TAP_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]  # type: ignore[index]
        assert tap.__version__ == ".".join(parts)

    def test_import_needs_neither_numpy_nor_torch(self) -> None:
        result = python("import sys, tensortap\nprint('numpy' in sys.modules, 'torch' in sys.modules)")
        assert result.stdout == "False False\n"


class TestReading:
    def test_queries(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            for step in range(5):
                tap.save(step, "a.b")
                tap.save(-step, "a.c", kind="grad")
                tap.step()
        with tap.open(tmp_path / "run") as run:
            assert run.layout == "native"
            assert len(run) == 10
            assert run.names() == ["a.b", "a.c"]
            assert [r.value() for r in run.query("a.b", step="1-2|4")] == [1, 2, 4]
            assert [r.value() for r in run.query(kind="grad", step=[3])] == [-3]
            assert list(run.query(rank=1)) == []
            assert repr(run["a.b"][0]) == "<Record 'a.b' step 0 rank 0 forward int64[]>"
            with pytest.raises(KeyError):
                run["missing"]
            with pytest.raises(ValueError, match="forward"):
                run.query(kind="sideways")
            assert run.refresh() == (False, False)

    def test_a_closed_run_says_so(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(1, "x")
            tap.save(2, "x")
        run = tap.open(tmp_path / "run")
        cursor = run.query()
        record = next(cursor)
        run.close()
        with pytest.raises(ValueError, match="closed"):
            next(cursor)
        with pytest.raises(ValueError, match="closed"):
            record.map()
        with pytest.raises(ValueError, match="closed"):
            len(run)

    def test_a_growing_recording(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(1, "x")
            tap.flush()
            with tap.open(tmp_path / "run") as run:
                assert len(run) == 1
                tap.save(2, "x")
                tap.flush()
                assert run.refresh() == (True, True)
                assert [r.value() for r in run["x"]] == [1, 2]

    def test_not_a_recording(self, tmp_path: Path) -> None:
        for path in (tmp_path / "missing", tmp_path):
            with pytest.raises(tap.Error) as caught:
                tap.open(path)
            assert str(path) in caught.value.args[0]

    def test_damage_is_found(self, tmp_path: Path) -> None:
        with tap.record(tmp_path / "run"):
            tap.save(np.arange(1000), "x")
        with tap.open(tmp_path / "run") as run:
            record = run["x"][0]
            where = tmp_path / "run" / record.file, record.offset
        data = bytearray(where[0].read_bytes())
        data[where[1] + 100] ^= 1
        where[0].write_bytes(data)
        result = tap.verify(tmp_path / "run")
        assert not result
        assert [(p.kind, p.name) for p in result.problems] == [("corrupt", "x")]
        assert tap.verify(tmp_path / "run", quick=True)


def test_docstrings() -> None:
    for module in (tap, reading, recording, values):
        assert doctest.testmod(module).failed == 0
    test = doctest.DocTestParser().get_doctest(tap.save.__doc__ or "", {}, "save", None, 0)
    assert len(test.examples) == 2
    assert doctest.DocTestRunner().run(test).failed == 0


def test_signatures_are_known() -> None:
    assert list(inspect.signature(tap.save).parameters)[:4] == ["value", "name", "kind", "step"]
    stub = (ROOT / "python/tensortap/_core.pyi").read_text()
    for name in inspect.signature(tap.save).parameters:
        assert re.search(rf"\b{name}:", stub)


class TestConstants:
    """What C numbers is said by C alone."""

    def test_as_the_headers_have_them(self) -> None:
        from tensortap import _core

        header = (Path(__file__).parents[2] / "include" / "tensortap" / "tensortap.h").read_text()
        engine = header + (Path(__file__).parents[2] / "include" / "tensortap" / "tensortap_engine.h").read_text()
        rows = re.findall(r'^    X\(\w+, (\d+), \d+, [BUIFC], "(\w+)"', header, re.MULTILINE)
        assert {name: int(number) for number, name in rows} == _core.DTYPES
        assert len(rows) > 20
        kinds = dict(re.findall(r"TAP_KIND_(\w+) = (\d)", header))
        assert {name.lower(): int(number) for name, number in kinds.items()} == _core.KINDS
        compare = (Path(__file__).parents[2] / "include" / "tensortap" / "tensortap_compare.h").read_text()
        classes = dict(re.findall(r'^    X\([A-Z_]+, (\d), +"(\w+)"\)', compare, re.MULTILINE))
        assert {name: int(number) for number, name in classes.items()} == _core.MATCH_CLASSES
        for name in ("SAVE_SLOT", "SAVE_SLOT_GONE", "SAVE_OVERWRITE", "CALL_HOST", "ENGINE_PROFILE"):
            (number,) = re.findall(rf"TAP_{name} = (\d+)", engine)
            assert getattr(_core, name) == int(number)

    def test_no_python_file_types_them_again(self) -> None:
        package = Path(__file__).parents[2] / "python" / "tensortap"
        again = re.compile(r'"bfloat16": \d|"forward": 0|"append": 1|SLOT\w* = \d|SLOT, \w+ = \d|range\(8\)|float16: \d|"forward", "grad"|"equal", "rounding"')
        found = [f"{path.name}: {hit}" for path in package.rglob("*.py") for hit in again.findall(path.read_text())]
        assert found == []
