"""How to learn decisions in computer systems: agents, collection, training, policies."""

from environments import stack

stack.prepare()
