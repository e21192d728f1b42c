"""The policy that decides call sites: networks on a grid, the same in TensorFlow, NumPy and C++."""
