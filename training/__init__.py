"""PyTorch reference of the model, training of the miniature, writer of the golden vectors. See README.md."""
