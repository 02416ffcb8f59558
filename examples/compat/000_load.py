import torch
x = torch.load("./x_device_0.pt")
print(x)
print(x.shape)
