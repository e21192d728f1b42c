"""Modules compiled under policies: one episode, many of them, and the store that keeps them."""
