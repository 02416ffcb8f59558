import torch
import torch_npu
x = torch.randn([5, 5]).npu()
torch_npu.save_npugraph_tensor(x, save_path = "./x.bin")
y = torch.add(x, x)
torch_npu.save_npugraph_tensor(y)
