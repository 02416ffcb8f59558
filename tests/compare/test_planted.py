"""Faults planted at random into small models, and models that are equal: what is named first, and no false alarm.

PLANTED_SEED=N draws the places of an earlier run again; PLANTED_ALL=1 has every column, as `make test-compare` asks for.
"""

import os
import random
from pathlib import Path

import planted
import pytest
import tensortap as tap
import torch

SEED = int(os.environ.get("PLANTED_SEED", random.randrange(10**6)))
ALL = os.environ.get("PLANTED_ALL", "") not in ("", "0")
QUICK = [(None, "native"), (None, "msprobe"), ("tensortap", "native")]
COLUMNS = [*QUICK, ("aot_eager", "native"), ("tensortap", "msprobe")] if ALL else QUICK
BACKENDS = ["aot_eager", "tensortap", "inductor"] if ALL else ["aot_eager", "tensortap"]
MISSES = 3  # of the faults of one column at most


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("backend", "layout"), COLUMNS)
def test_faults_are_named_first(tmp_path: Path, backend: str | None, layout: str):
    draw = random.Random(f"{SEED} {backend} {layout}")
    missed = []
    print(f"PLANTED_SEED={SEED}")
    for name in planted.MODELS:
        planted.record(str(tmp_path / name), *planted.build(name), None, layout)
    for number, fault in enumerate(planted.FAULTS):
        name, place = draw.choice(fault.places)
        model, value = planted.build(name)
        model.fault, model.fault_at = fault.operation, place
        run = str(tmp_path / f"fault{number}")
        planted.record(run, model, value, backend, layout)
        first = tap.compare(tmp_path / name, run).first
        if first is None or place not in first.name or first.what not in ("wrong", "nonfinite"):
            missed.append(f"{fault.what} at {place} of {name}: {first}")
    print(f"{len(planted.FAULTS) - len(missed)} of {len(planted.FAULTS)} named first", *missed, sep="\n")
    assert len(planted.FAULTS) >= 24
    assert len(missed) <= MISSES, "\n".join([f"PLANTED_SEED={SEED}", *missed])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_false_alarm(tmp_path: Path, dtype: torch.dtype):
    """Eager beside compiled, forward and backward, by one thread and by two."""
    pairs = drift = 0
    for name in planted.MODELS:
        planted.record(str(tmp_path / name), *planted.build(name, dtype), None, "native", backward=True)
        for backend in BACKENDS:
            for threads in (1, 2):
                torch.set_num_threads(threads)
                run = tmp_path / f"{name}-{backend}-{threads}"
                planted.record(str(run), *planted.build(name, dtype), backend, "native", backward=True)
                torch.set_num_threads(1)
                result = tap.compare(tmp_path / name, run)
                assert result.classes["wrong"] == result.classes["nonfinite"] == 0, result
                assert result.records[0] == result.records[1] == sum(result.classes.values())
                if dtype == torch.float32:
                    assert result, result
                pairs += result.records[0]
                drift += result.classes["drift"]
    print(f"{drift} of {pairs} pairs drift")
    assert drift <= pairs / 100
