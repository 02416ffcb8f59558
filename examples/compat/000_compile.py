import torch
import torch_npu

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = torch.add(x, x)
        torch_npu.save_npugraph_tensor(x, save_path = "/home/dump/output.pt")
        x = torch.add(x, 2)
        torch_npu.save_npugraph_tensor(x)
        return x

x = torch.randn([5, 5]).npu()
model = Model()
model = torch.compile(model, backend="npugraph_ex", dynamic=False, fullgraph=True)
model (x)
