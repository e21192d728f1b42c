"""Rewrite the graph of a deep-learning model so that it runs faster and computes the same.

onnx_io reads a file into a graph, rewriting applies rules to it, and costs estimates what they
save. search looks for a cheap graph; selection measures it and writes it to a file. environment
offers rewriting as the episodes of a reinforcement-learning environment.
"""
