"""What `tfrl bench inlining` measures."""
