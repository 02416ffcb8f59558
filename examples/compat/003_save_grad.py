import troubleshooter as ts
import time
import numpy as np
import torch

from pathlib import Path


class NetWithSaveGrad(torch.nn.Module):
    def __init__(self, path):
        super(NetWithSaveGrad, self).__init__()
        self.dense = torch.nn.Linear(3, 2)
        self.apply(self._init_weights)
        self.path = path

    def _init_weights(self, module):
        if isinstance(module, torch.nn.Linear):
            module.weight.data.zero_()
            module.bias.data.zero_()

    def forward(self, x):
        x = self.dense(x)
        x = ts.save_grad(self.path + "dense", x)
        return x


if __name__ == "__main__":
    path = './torch_ts_save/'
    data = np.array([[0.2, 0.5, 0.2]], dtype=np.float32)
    label = np.array([[1, 0]], dtype=np.float32)

    net = NetWithSaveGrad(path)
    loss_fun = torch.nn.CrossEntropyLoss()

    out = net(torch.tensor(data))
    loss = loss_fun(out, torch.tensor(label))
    loss.backward()
    time.sleep(0.1)
    path = Path(path)
    files = sorted(map(str, path.glob("*.npy")))
    print(files)
    # ['torch_ts_save/0_dense_backward.npy']
    print(np.load(path / "0_dense_backward.npy"))
    # [[-0.5  0.5]]
