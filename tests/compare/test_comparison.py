"""Comparing recordings, against what numpy says of the same arrays: metrics, classes, tolerances, and what goes wrong."""

import contextlib
import math
import os
import random
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensortap as tap
from tensortap._record.command import path as command_path

FACTOR = 4
ROUNDOFF = {"float16": 2**-11, "float32": 2**-24, "float64": 2**-53}


def write(place: Path, values, **options) -> str:
    """values: (name, array) in order, or (name, array, keywords of save)."""
    with tap.record(place, **options):
        for name, array, *more in values:
            if name == "step()":
                tap.step()
            else:
                tap.save(array, name, *more)
    return str(place)


def command(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([command_path(), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def unit_of(a, b, seen: float) -> float:
    """The rounding of one value, relative to |b| + rms(b), as docs/compare.md says it."""
    roundoff = max(ROUNDOFF.get(a.dtype.name, 0), ROUNDOFF.get(b.dtype.name, 0))
    if roundoff == 0:
        return 0
    roundoff = max(roundoff, seen)
    return 2 * roundoff + min(roundoff, 2**-24) * math.sqrt(max(64, *a.shape, 1))


def ratios(a, b, unit: float):
    x, y = a.astype("f8"), b.astype("f8")
    both = np.isfinite(x) & np.isfinite(y)
    rms = math.sqrt(float(np.mean(y[both] ** 2))) if both.any() else 0
    error = np.abs(x - y)[both]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = error / (unit * (np.abs(y[both]) + rms))
    return np.where(error == 0, 0, ratio), error


def expected(a, b, seen: float) -> tuple[str, int]:
    """(class as far as a single pair has one, values beyond tolerance)"""
    unit = unit_of(a, b, seen)
    x, y = a.astype("f8"), b.astype("f8")
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if same.all():
        return "equal", 0
    if (~same & ~(np.isfinite(x) & np.isfinite(y))).any():
        return "nonfinite", 0
    if unit == 0:
        return "wrong", int((~same).sum())
    beyond = int((ratios(a, b, unit)[0] > FACTOR).sum())
    return ("wrong" if beyond else "rounding"), beyond


def changed(rng: np.random.Generator, a, how: str):
    b = a.copy()
    flat = b.reshape(-1)
    if how == "ulp" and a.dtype.kind == "f":
        b = np.nextafter(a, np.inf, dtype=a.dtype)
    elif how == "one" and flat.size:
        flat[rng.integers(flat.size)] += 1
    elif how == "scale" and a.dtype.kind == "f":
        b = (a * a.dtype.type(1 + 64 * np.finfo(a.dtype).eps)).astype(a.dtype)
    elif how == "nan" and a.dtype.kind == "f" and flat.size:
        flat[rng.integers(flat.size)] = np.nan
    return b


def test_classes_and_metrics_are_numpys(tmp_path):
    number = random.randrange(2**32)
    print("random number", number)
    rng = np.random.default_rng(number)
    first, second = [], []
    for i in range(150):
        dtype = rng.choice(["float32", "float32", "float64", "float16", "int32", "uint8", "bool"])
        shape = tuple(rng.integers(1, 40, rng.integers(0, 4)))
        a = (rng.standard_normal(shape) * 8).astype(dtype)
        a = np.asarray(a)
        first.append((f"t{i}", a))
        how = str(rng.choice(["same", "ulp", "one", "scale", "nan"])) if dtype != "bool" else "same"
        second.append((f"t{i}", np.asarray(changed(rng, a, how))))
    result = tap.compare(write(tmp_path / "a", first), write(tmp_path / "b", second))
    found = {match.name: match for match in result}
    assert len(found) == 150
    seen = 0.0
    for (name, a), (_, b) in zip(first, second, strict=True):
        seen = max(seen, ROUNDOFF.get(a.dtype.name, 0))
        match = found[name]
        what, beyond = expected(a, b, seen)
        assert (match.what if match.what != "drift" else "wrong") == what, (name, a.dtype, match)
        if match.difference is None:
            assert what == "equal"
            continue
        d = match.difference
        assert d.count == a.size
        assert d.beyond == beyond
        ratio, error = ratios(a, b, unit_of(a, b, seen)) if unit_of(a, b, seen) else (None, None)
        if what == "rounding" or what == "wrong":
            x, y = a.astype("f8"), b.astype("f8")
            assert d.max_abs == np.abs(x - y).max()
            assert d.worst.index == np.unravel_index(np.abs(x - y).argmax(), a.shape)
            assert d.different == (x != y).sum()
        if what == "wrong" and ratio is not None:
            assert match.ratio == pytest.approx(ratio.max(), rel=1e-9)
            for share, percentile in zip((0.5, 0.9, 0.99), d.percentiles, strict=True):
                exact = np.quantile(error, share, method="inverted_cdf")
                assert exact <= percentile * (1 + 1e-12) and percentile <= exact * 1.2 + 1e-300


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 20, 99, 100, 101, 1000])
def test_percentiles_at_their_edges(tmp_path, count):
    first, second = [], []
    for wrong in sorted({1, count // 100, count // 10, count // 10 + 1, count // 2, count // 2 + 1} - {0}):
        a = np.arange(count, dtype="f8")
        b = a.copy()
        b[:wrong] += 1
        first.append((f"t{wrong}", a))
        second.append((f"t{wrong}", b))
    result = {m.name: m for m in tap.compare(write(tmp_path / "a", first), write(tmp_path / "b", second))}
    for (name, a), (_, b) in zip(first, second, strict=True):
        exact = [sorted(np.abs(a - b))[-(-count * percent // 100) - 1] for percent in (50, 90, 99)]
        assert list(result[name].difference.percentiles) == exact, name


def chain(scale: float = 0, at: int = 3):
    """Values that feed one another; from number `at` on they are off by `scale`."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((16, 8)).astype("f4")
    out = []
    for i in range(8):
        x = np.tanh(x @ rng.standard_normal((8, 8)).astype("f4")).astype("f4")
        if i == at:
            x = x + np.float32(scale)
        out.append((f"layer{i}", x))
    return out


def test_the_first_one_that_is_wrong_is_named(tmp_path):
    result = tap.compare(write(tmp_path / "a", chain()), write(tmp_path / "b", chain(1e-3)))
    assert not result
    assert result.first.name == "layer3"
    assert result.first.what == "wrong"
    assert result.verdict.blame == "between"
    assert result.before.name == "layer2"
    assert "first divergence: layer3, step 0, rank 0" in result.verdict.text
    assert "between layer2 (agrees) and this" in result.verdict.text
    assert result.classes["wrong"] == 1, "what follows inherits it"


def test_a_nan_comes_first(tmp_path):
    values = chain()
    values[2] = ("layer2", np.where(np.arange(128).reshape(16, 8) == 17, np.nan, values[2][1]).astype("f4"))
    result = tap.compare(write(tmp_path / "a", chain()), write(tmp_path / "b", values))
    assert (result.first.name, result.first.what) == ("layer2", "nonfinite")
    assert result.first.difference.worst.index == (2, 1)
    nan = command("nan", tmp_path / "b")
    assert nan.returncode == 1
    assert "first NaN or Inf: layer2 forward, step 0, rank 0" in nan.stdout
    assert "layer1 before it has none" in nan.stdout
    assert command("nan", tmp_path / "a").returncode == 0


def test_inputs_that_agree_put_the_blame_on_the_operation(tmp_path):
    torch = pytest.importorskip("torch")

    def run(place, approximate):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(approximate=approximate), torch.nn.Linear(4, 4))
        with tap.record(place), tap.watch(model, "*", params=True):
            model(torch.randn(8, 4)).sum().backward()
            tap.step()
        return place

    result = tap.compare(run(tmp_path / "a", "none"), run(tmp_path / "b", "tanh"))
    assert result.first.name == "1.output"
    assert result.verdict.blame == "operation"
    assert result.verdict.inputs == (1, 1)
    assert result.verdict.text.endswith("its input 1.input agrees -> this operation is wrong")


def test_wrappers_of_models_are_no_part_of_a_name(tmp_path):
    a = [("net.fc.weight", np.ones(3, "f4")), ("net.fc", np.ones(3, "f4")), ("module", np.ones(1, "f4"))]
    b = [("module._orig_mod.net.fc.weight", np.ones(3, "f4")),
         ("module.net._fsdp_wrapped_module.fc", np.ones(3, "f4")), ("module", np.ones(1, "f4"))]
    result = tap.compare(write(tmp_path / "a", a), write(tmp_path / "b", b))
    assert result.classes["equal"] == 3
    assert result


def test_what_is_on_one_side_only_is_listed(tmp_path):
    x = np.ones(3, "f4")
    a = write(tmp_path / "a", [("x", x), ("lost", x), ("y", x)])
    b = write(tmp_path / "b", [("x", x), ("y", x), ("new", x)])
    result = tap.compare(a, b)
    assert {(match.name, match.what) for match in result.matches("bad")} == {("lost", "only_a"), ("new", "only_b")}
    assert not result and result.first is None
    assert command("compare", a, b).returncode == 1
    assert tap.compare(a, b, allow=["lost", "new"])
    assert command("compare", a, b, "--allow", "lost", "--allow", "new").returncode == 0


def test_calls_in_another_order_find_each_other(tmp_path):
    """More than wait in memory, in the reverse order, and names that come more than once."""
    count = 20000
    values = [(f"n{i % 17000}", np.array([i % 17000 + i // 17000], "f4")) for i in range(count)]
    reverse = sorted(values, key=lambda value: -int(value[0][1:]))
    result = tap.compare(write(tmp_path / "a", values), write(tmp_path / "b", reverse))
    assert result.classes["equal"] == count


def test_steps_shift(tmp_path):
    values = [item for i in range(6) for item in (("x", np.array([i], "f4")), ("step()", None))]
    a, b = write(tmp_path / "a", values[4:]), write(tmp_path / "b", values)  # a's step 0 is b's step 2
    assert not tap.compare(a, b)
    assert tap.compare(a, b, steps="0-", shift=2).classes["equal"] == 4
    assert tap.compare(a, b, steps="1-2", shift=2).classes == tap.compare(a, a, steps="1-2").classes
    assert command("compare", a, b, "--steps", "0:2").returncode == 0
    assert command("compare", a, b, "--steps", "2").returncode == 2


def test_rules_take_the_place_of_tolerance(tmp_path):
    a, b = write(tmp_path / "a", chain()), write(tmp_path / "b", chain(1e-3, at=7))
    assert not tap.compare(a, b)
    assert tap.compare(a, b, tol="layer7: abs<=2e-3")
    assert tap.compare(a, b, tol=["layer7: rel<=1e-9 or abs<=2e-3", "*: rel<=0"])
    assert not tap.compare(a, b, tol="layer7: rel<=1e-9 and abs<=2e-3")
    assert not tap.compare(a, b, tol="layer6: abs<=2e-3")
    for wrong in ("layer7", "x: rel<1", "x: max<=1", "x: rel<=", "x: rel<=1 or", ": rel<=1", "x: rel<=nan"):
        with pytest.raises(tap.Error, match="expected GLOB: rel<=1e-3 or abs<=1e-5"):
            tap.compare(a, b, tol=wrong)


def test_noise_is_what_repetitions_differ_by(tmp_path):
    a, b = write(tmp_path / "a", chain()), write(tmp_path / "b", chain(1e-3, at=5))
    near, far = write(tmp_path / "near", chain(1e-4, at=5)), write(tmp_path / "far", chain(-5e-4, at=5))
    assert not tap.compare(a, b, noise=near)
    assert not tap.compare(a, b)
    noisy = tap.compare(a, b, noise=[near, far])
    assert noisy
    assert noisy.classes["noise"] > 0
    assert not tap.compare(a, write(tmp_path / "c", chain(1e-3, at=2)), noise=far), "what is not noisy is still wrong"


def test_precision_and_coarser_sides(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    a = write(tmp_path / "a", [("x", x)])
    assert tap.compare(a, write(tmp_path / "b", [("x", x.bfloat16())])), "B cannot be nearer than its dtype"
    rounded = write(tmp_path / "c", [("x", x.bfloat16().float())])
    assert not tap.compare(a, rounded)
    assert tap.compare(a, rounded, precision="bfloat16")
    assert not tap.compare(a, rounded, precision="float16", factor=1)
    with pytest.raises(tap.Error, match="expected tf32 or a floating-point dtype"):
        tap.compare(a, rounded, precision="int8")


def test_sums_that_ought_to_be_zero_are_rounding(tmp_path):
    rng = np.random.default_rng(3)
    big, tiny = rng.standard_normal(4096).astype("f4"), rng.standard_normal(64).astype("f4") * np.float32(3e-8)
    a = write(tmp_path / "a", [("grad", big), ("key.bias", tiny)])
    b = write(tmp_path / "b", [("grad", big), ("key.bias", -tiny)])
    match = next(tap.compare(a, b).matches(name="key.bias"))
    assert match.what == "rounding"
    assert "smaller than the rounding" in match.reason
    alone = tap.compare(write(tmp_path / "c", [("t", tiny)]), write(tmp_path / "d", [("t", -tiny)]))
    assert alone.first.name == "t", "small, but nothing larger was there"


def test_statistics_where_nothing_else_was_kept(tmp_path):
    a, b = write(tmp_path / "a", chain(), keep="stats"), write(tmp_path / "b", chain(1e-3), keep="stats")
    same = tap.compare(a, write(tmp_path / "c", chain(), keep="stats"))
    assert same and same.by_stats == 8
    result = tap.compare(a, b)
    assert result.first.name == "layer3"
    assert result.first.evidence == "stats"
    assert "only statistics" in result.first.reason
    assert tap.compare(a, write(tmp_path / "d", chain())).by_stats == 8, "one side with bytes, one without"


def test_shapes_texts_and_types(tmp_path):
    x = np.ones((2, 3), "f4")
    a = write(tmp_path / "a", [("t", x), ("s", "one"), ("n", 3), ("none", None), ("v", 1.5)])
    b = write(tmp_path / "b", [("t", x.T.copy()), ("s", "two"), ("n", 4), ("none", 5), ("v", 1.5)])
    result = tap.compare(a, b)
    found = {match.name: (match.what, match.reason) for match in result}
    assert found["t"] == ("incomparable", "the shapes differ: [2, 3] and [3, 2]")
    assert found["s"] == ("incomparable", "the texts differ")
    assert found["n"][0] == "wrong"
    assert found["none"] == ("incomparable", "the values are of different types")
    assert found["v"][0] == "equal"
    assert result.first.name == "t"


def test_repeat_shows_both_bit_patterns(tmp_path):
    x = np.arange(12, dtype="f4").reshape(3, 4)
    y = x.copy()
    y[1, 2] = np.nextafter(y[1, 2], np.float32(9))
    z = x.copy()
    z[0, 0] = -0.0
    a, b, c = (write(tmp_path / n, [("w", x), ("x", v)]) for n, v in (("a", x), ("b", y), ("c", z)))
    for other, index in ((b, (1, 2)), (c, (0, 0))):
        result = tap.compare(a, other, exact=True)
        values = y if other == b else z
        assert (result.first.name, result.first.difference.first.index) == ("x", index)
        assert result.first.difference.bits == tuple(f"{v[index].view('u4'):08x}" for v in (x, values))
        assert result.first.difference.beyond == 1
    assert tap.compare(a, c), "0 and -0 are equal numbers"
    done = command("repeat", a, b)
    assert done.returncode == 1
    assert "other bits at [1, 2]: 0x40c00000, 0x40c00001" in done.stdout
    assert command("repeat", a, a).returncode == 0


def test_threads_and_spans_change_nothing(tmp_path):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1500, 5000)).astype("f4")  # several spans
    y = x + (rng.random(x.shape) < 1e-3).astype("f4") * np.float32(1e-4)
    a, b = write(tmp_path / "a", [("x", x)]), write(tmp_path / "b", [("x", y)])
    one, four = (next(iter(tap.compare(a, b, threads=n))) for n in (1, 4))
    assert one == four
    assert one.difference.beyond == (ratios(x, y, unit_of(x, y, 0))[0] > FACTOR).sum()
    assert one.difference.different == (x != y).sum()
    assert one.difference.norm == pytest.approx(np.linalg.norm((x.astype("f8") - y).ravel()), rel=1e-12)
    assert tap.compare(a, b, threads=4, exact=True).first.difference.beyond == (x != y).sum()


@pytest.mark.parametrize("layout", ["msprobe", "torch_npu", "mindspore", "troubleshooter"])
def test_other_layouts(tmp_path, layout):
    pytest.importorskip("torch")
    try:
        a, b = (write(tmp_path / n, chain(s), layout=layout) for n, s in (("a", 0), ("b", 1e-3)))
    except tap.Error as error:
        pytest.fail(str(error))
    result = tap.compare(a, b)
    assert result.records == (8, 8)
    assert not result
    assert result.order == {"msprobe": "forward", "troubleshooter": "exact"}.get(layout, "none")
    if result.order == "none":
        assert result.verdict.blame == "unordered"
    else:
        assert "layer3" in result.first.name
    assert tap.compare(a, a)


def test_what_cannot_be_read_is_told_and_the_rest_goes_on(tmp_path):
    big = np.arange(3_000_000, dtype="f4")
    a = write(tmp_path / "a", [("x", big), ("y", big)])
    b = write(tmp_path / "b", [("x", 2 * big), ("y", 2 * big)])
    segment = next((tmp_path / "b").rglob("*.tap"))
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size - 8_000_000)
    result = tap.compare(a, b)
    found = {match.name: match for match in result}
    assert found["x"].what == "wrong"
    assert found["y"].what == "incomparable"
    assert "ends before the bytes of a record" in found["y"].reason
    assert result.unread == 1
    done = command("compare", a, b)
    assert done.returncode == 2
    assert "1 record could not be read" in done.stderr
    segment.unlink()
    assert command("compare", a, b).returncode == 2


def test_results_are_kept_and_read_again(tmp_path):
    a, b, kept = write(tmp_path / "a", chain()), write(tmp_path / "b", chain(1e-3)), tmp_path / "r.cmp"
    result = tap.compare(a, b, output=kept)
    again = tap.Comparison.open(kept)
    assert str(again) == str(result)
    assert list(map(repr, again)) == list(map(repr, result))  # repr: NaN equals NaN
    assert command("compare", kept).stdout == command("compare", a, b).stdout
    tap.compare(a, a, output=kept)
    assert tap.Comparison.open(kept)
    junk = tmp_path / "junk.cmp"
    for content in (b"", b"junk" * 100, kept.read_bytes()[:5000]):
        junk.write_bytes(content)
        with pytest.raises(tap.Error):
            list(tap.Comparison.open(junk))
    with pytest.raises(tap.Error):
        tap.Comparison.open(tmp_path / "nowhere.cmp")
    for bad in (tmp_path / "nowhere", junk):
        with pytest.raises(tap.Error):
            tap.compare(a, bad)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing temporary stays"


ENDLESS = {
    "a view": """ALTER TABLE match RENAME TO kept; CREATE VIEW match AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r)
                 SELECT kept.* FROM kept, r""",
    "a view of what is known": """ALTER TABLE info RENAME TO kept; CREATE VIEW info AS WITH RECURSIVE r(key, value) AS
                 (SELECT 'a', 1 UNION ALL SELECT * FROM r) SELECT * FROM r WHERE key = 'b'""",
    "another schema": "DROP TABLE match; CREATE TABLE match(id)",
    "a trigger": "CREATE TRIGGER t BEFORE UPDATE ON match BEGIN DELETE FROM match; END",
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_result_of_a_stranger_ends(tmp_path, what):
    kept = tmp_path / "r.cmp"
    tap.compare(write(tmp_path / "a", chain()), write(tmp_path / "b", chain(1e-3)), output=kept)
    with contextlib.closing(sqlite3.connect(kept)) as db:
        db.executescript(ENDLESS[what])
    done = command("compare", kept)
    if what == "a trigger":
        assert done.returncode == 1, "nothing of it runs"
    else:
        assert done.returncode == 2 and "is not the result of a comparison, or it is damaged" in done.stderr, done.stderr


def test_a_result_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.cmp")
    done = command("compare", tmp_path / "pipe.cmp")
    assert done.returncode == 2 and "is not the result of a comparison" in done.stderr, done.stderr


def test_filters(tmp_path):
    a, b = write(tmp_path / "a", chain()), write(tmp_path / "b", chain(1e-3))
    assert tap.compare(a, b, name="layer0|layer1").records == (2, 2)
    assert tap.compare(a, b, name=["layer0", "layer1"])
    assert tap.compare(a, b, kind="grad").records == (0, 0)
    assert command("compare", a, b, "--name", "nothing").returncode == 1
    with pytest.raises(ValueError, match="kind is one of"):
        tap.compare(a, b, kind="x")
    with pytest.raises(ValueError, match="class is one of"):
        tap.compare(a, b).matches("x")
