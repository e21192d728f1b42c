"""Compiling modules under policies: one episode, many episodes, and the store that keeps them."""
