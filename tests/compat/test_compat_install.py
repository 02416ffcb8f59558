"""Making the packages importable, and what npu means."""
import pathlib
from collections.abc import Callable
from typing import Any

import torch

SHOW = "import torch_npu; print(torch_npu.save_npugraph_tensor.__module__)"


def test_every_way_in(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    ours = "tensortap.compat.torch_npu"
    assert script(SHOW).stdout.strip() == ours
    assert script(SHOW, before=(), TENSORTAP_COMPAT="1").stdout.strip() == ours
    assert script("import tensortap.compat; tensortap.compat.install()\n" + SHOW, before=()).stdout.strip() == ours
    child = f"import subprocess, sys; print(subprocess.run([sys.executable, '-c', {SHOW!r}], capture_output=True, text=True).stdout)"
    assert script(child).stdout.strip() == ours
    assert "No module named 'torch_npu'" in script(SHOW, before=(), check=False).stderr


def test_real_package_is_not_shadowed(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    (tmp_path / "real/msprobe/pytorch").mkdir(parents=True)
    (tmp_path / "real/msprobe/__init__.py").write_text("")
    (tmp_path / "real/msprobe/pytorch/__init__.py").write_text("PrecisionDebugger = 'the real one'\n")
    show = "from msprobe.pytorch import PrecisionDebugger as P; print(P)"
    real = str(tmp_path / "real")
    assert script(show, PYTHONPATH=real).stdout.strip() == "the real one"
    forced = script(show, before=("-m", "tensortap.compat", "--force"), PYTHONPATH=real).stdout
    assert "tensortap.compat.msprobe" in forced
    assert "ModuleNotFoundError" in script("import msprobe.core", PYTHONPATH=real, check=False).stderr


def test_mistakes_in_the_command(script: Callable[..., Any]) -> None:
    done = script("", before=("-m", "tensortap.compat", "nothing.py"), check=False)
    assert done.returncode == 2 and "there is no file nothing.py" in done.stderr


def test_npu_means_what_is_there(script: Callable[..., Any]) -> None:
    done = script(
        """
import torch, torch_npu, pickle
there = "cuda" if torch.cuda.is_available() else "cpu"
d = torch.device("npu:0")
assert d.type == there and isinstance(d, torch.device) and pickle.loads(pickle.dumps(d)) == d
for made in (torch.zeros(2, device="npu"), torch.ones(2).npu(), torch.ones(2).npu(0), torch.ones(2).to("npu:0"), torch.ones(2).to(d),
             torch.nn.Linear(1, 1).npu().weight, torch.nn.Linear(1, 1).to("npu").weight, torch.ones(1).new_zeros(2, device="npu")):
    assert made.device.type == there and made.is_npu
with torch.device("npu"):
    assert torch.ones(1).device.type == there
torch.npu.set_device(0); torch.npu.set_device("npu:0")
assert torch.npu.is_available() and torch.npu.device_count() >= 1 and torch.npu.current_device() == 0
torch.npu.synchronize(); torch.npu.empty_cache(); torch.npu.manual_seed_all(3)
with torch.npu.stream(torch.npu.Stream()):
    torch.npu.current_stream().synchronize()
torch.save(torch.ones(1), "x.pt"); assert torch.load("x.pt", map_location="npu:0").device.type == there
with torch.autocast("npu", dtype=torch.bfloat16):
    assert torch.nn.Linear(2, 2).to("npu")(torch.ones(1, 2, device="npu")).dtype == torch.bfloat16
for name in ("npu_fusion_attention", "npu_rotary_mul"):
    assert not hasattr(torch_npu, name)
try:
    torch_npu.npu_rms_norm(1)
except AttributeError as error:
    print(error)
"""
    )
    assert "torch_npu.npu_rms_norm is not there" in done.stdout


def test_hccl(tmp_path: pathlib.Path, script: Callable[..., Any]) -> None:
    text = """
import torch, torch_npu, os
torch.distributed.init_process_group(backend="hccl")
x = torch.ones(2).npu() * (torch.distributed.get_rank() + 1)
torch.distributed.all_reduce(x)
torch_npu.save_npugraph_tensor(x, "sum.pt")
torch.distributed.destroy_process_group()
"""
    before = ("-m", "tensortap.compat", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    script(text, before=before)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["sum_device_0.pt", "sum_device_1.pt"]
    assert all(torch.load(tmp_path / name).tolist() == [3.0, 3.0] for name in names)
