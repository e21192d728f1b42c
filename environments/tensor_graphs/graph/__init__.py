"""The graph of tensor operations: its nodes and types, its edits, and pictures of it."""
