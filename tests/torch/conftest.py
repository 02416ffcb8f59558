"""A recorder left open by a failed test must not disturb the next; compile caches start empty."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="tensortap-inductor-"))

import tensortap as tap
import torch


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    tap.close()
    torch._dynamo.reset()
