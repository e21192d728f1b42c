"""What `tfrl bench tensor_graphs` measures."""
