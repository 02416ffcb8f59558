"""Which process this is among several."""

from __future__ import annotations


def world_and_rank() -> tuple[int, int]:
    """The size of the process group and the place in it; 1 and 0 without one."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return int(distributed.get_world_size()), int(distributed.get_rank())
    return 1, 0
