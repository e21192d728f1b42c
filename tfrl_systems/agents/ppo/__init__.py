"""PPO: policy gradients in several small steps on the same experience.

J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov: Proximal Policy Optimization Algorithms
(2017), with the clipped objective (7), the advantages of its (11) and (12),

    δ_t = r_t + γ d_t V(s_{t+1}) - V(s_t),    Â_t = δ_t + γ λ d_t Â_{t+1},

where the discount d_t is 0 at the end of an episode. The value network learns R̂_t = Â_t + V(s_t).

It is Algorithm 3 of the thesis (3.3), which leaves open what R̂ is and how many steps K there are,
but for this: the objective is a mean over steps, not a sum over each trajectory, so that the step
size does not depend on their length. Advantages are brought to mean 0 and variance 1. One Adam
takes the steps of policy and value network together, since they share an encoder; the latter's loss
has a weight. Settings add entropy, relative advantages, and scaled rewards and observations.

Losses, advantages, normalisers and policies are those of TF-Agents' `PPOClipAgent`, but for this: a
step of training sees every step in which an action was taken, even an episode's last one, and
nothing else, while TF-Agents' means and variances count padding, and it skips steps whose return
and advantage are 0. The epochs are a loop in the graph, which is traced once. And relative
advantages, mixtures and two policies have losses of their own. With groups, advantages are those
that the experience brings along, as in Z. Shao et al.: DeepSeekMath (2024), without its further
terms.
"""

from __future__ import annotations

import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.ppo.agent import Config, PPOAgent, ranges
from tfrl_systems.agents.ppo.mixture import MixtureAgent
from tfrl_systems.agents.ppo.two_policies import TwoPolicyAgent

COLLECTS = "episodes"

__all__ = ["COLLECTS", "Config", "PPOAgent", "TwoPolicyAgent", "make_agent", "ranges"]


def make_agent(config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec) -> PPOAgent:
    """Make a PPO agent (see `agents`)."""
    policy_gradients.check("ppo", config, ranges(config))
    if config.components > 1:
        agent_type = MixtureAgent
    else:
        agent_type = TwoPolicyAgent if config.two_policies else PPOAgent
    return agent_type(config, *tensor_spec.from_spec((time_step_spec, action_spec)))
