"""The warm start of policy gradients: an actor that at first decides as the default does.

From there on training only has to find better decisions, and not to find the default's again.
"""

from __future__ import annotations

import numpy as np

from tfrl_systems.networks import actors


def follow_feature(network: actors.ActorNetwork, feature: str, probability: float) -> None:
    """Make an actor begin with the action that a feature names, whatever else it sees.

    The first unit of each hidden layer passes the feature on, and the outputs read it. All other
    weights stay as they were drawn, so that training has something to start from. They move the
    probability by a few hundredths at most, because the output layer's initial weights are small.

    Args:
      network: an actor whose observation is a dict of numbers and whose actions are 0 and 1.
      feature: key of an observed integer that is 0 or 1.
      probability: initial probability of the action that the feature names, above 0 and below 1.
    """
    named = network.named_variables()
    activate = actors.ACTIVATIONS[network.describe()["activation"]]
    place = [field.path for field in network.inputs].index((feature,))
    # The network takes the signed logarithm of integers, so 0 and 1 enter as 0 and log 2.
    ends = np.log1p(np.array([0.0, 1.0], np.float32))
    num_layers = len(named) // 2
    for number in range(num_layers - 1):
        kernel, bias = (named[f"{kind}_{number}"] for kind in ("kernel", "bias"))
        weights, offsets = kernel.numpy(), bias.numpy()
        weights[:, 0] = 0
        weights[place, 0] = 2 / (ends[1] - ends[0])
        offsets[0] = -1 - weights[place, 0] * ends[0]
        kernel.assign(weights)
        bias.assign(offsets)
        ends, place = activate(np.array([-1.0, 1.0], np.float32)).numpy(), 0
    kernel, bias = (named[f"{kind}_{num_layers - 1}"] for kind in ("kernel", "bias"))
    weights = kernel.numpy()
    slope = np.log(probability / (1 - probability)) / (ends[1] - ends[0])
    weights[place] = [-slope, slope]
    kernel.assign(weights)
    bias.assign(-weights[place] * ends.mean())
