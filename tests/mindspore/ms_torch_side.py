"""The PyTorch half of test_ms_compare: the same network, run by another Python, which has torch.
Usage: python ms_torch_side.py WEIGHTS.npz RUN"""
import sys

import numpy as np
import tensortap as tap
import torch

weights = {name: torch.tensor(value) for name, value in np.load(sys.argv[1]).items()}
layers = [torch.nn.Linear(6, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)]
with torch.no_grad():
    for index, layer in enumerate(layers):
        layer.weight.copy_(weights[f"w{index}"])
        layer.bias.copy_(weights[f"b{index}"])
with tap.record(sys.argv[2]):
    for _ in range(2):
        x = weights["x"]
        tap.save(x, "x")
        for index, layer in enumerate(layers):
            x = layer(x)
            tap.save(x, f"layer{index}", grad=True)
            x = torch.relu(x)
        loss = (x * x).mean()
        tap.save(loss, "loss")
        loss.backward()
        tap.step()
