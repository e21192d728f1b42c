"""How to learn decisions in computer systems: agents, collection, training, policies."""

from tfrl_systems import neighbour

neighbour.check("environments")

from environments import stack  # noqa: E402

stack.prepare()
