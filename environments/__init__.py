"""Systems to decide in, each a TF-Agents `PyEnvironment`."""

from environments import stack

stack.prepare()
