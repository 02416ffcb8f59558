"""Each test in a directory of its own, which MindSpore fills with files too, and in the mode it asks for. A recorder left
open by a failed test must not disturb the next."""
import os
import pathlib
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("GLOG_v", "3")  # MindSpore's own warnings

import mindspore as ms
import tensortap.mindspore as tap


@pytest.fixture(autouse=True)
def _clean(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    tap.close()


@pytest.fixture(params=["pynative", "graph"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)
