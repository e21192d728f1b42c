"""Learning algorithms: each file has a `Config` and a function that makes its agent.

    make_agent(config, time_step_spec, action_spec)

The observation is a nest of numbers, or a graph with a list of actions. The action is a bounded
float32 vector or an integer scalar whose least value is 0; for graphs it is (xfer_id, location).
`make_agent` raises a UserError if a setting is out of its range, or a spec of another kind.
"""

from environments import stack

stack.check_keras()
