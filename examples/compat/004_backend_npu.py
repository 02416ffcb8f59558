torch.compile(model, backend="npu")
