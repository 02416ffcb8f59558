import torch
import torch_npu

x = torch.randn([5, 5]).npu()

graph1 = torch.npu.NPUGraph()
with torch.npu.graph(graph1):
    torch_npu.save_npugraph_tensor(x, save_path = "./x.pt")
    output = torch.square(x)
    torch_npu.save_npugraph_tensor(output, save_path = "./output.pt")

graph1.replay()
