"""A recorder left open by a failed test must not disturb the next; compile caches start empty."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # make test has one for all workers
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="tensortap-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)

import tensortap as tap
import torch


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    tap.close()
    torch._dynamo.reset()
