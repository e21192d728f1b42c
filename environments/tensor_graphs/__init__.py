"""Deep-learning graphs: rules that make a model faster and leave what it computes.

onnx_io reads a file into a graph; rewriting applies rules to it; costs says what that saves; search
finds a cheap graph; selection measures it and writes it. environment is the same as an episode.
"""
