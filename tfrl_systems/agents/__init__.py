"""Learning algorithms: each file has a `Config` and a `make_agent`."""

from environments import stack

stack.check_keras()
