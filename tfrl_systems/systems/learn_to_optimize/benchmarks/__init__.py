"""What `tfrl bench learn_to_optimize` measures."""
