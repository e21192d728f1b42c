"""The help text of each verb for tensor_graphs."""

from __future__ import annotations

TRAIN = """\
Learns which rule to apply where, so that graphs of tensor operations cost less.

  tfrl train tensor_graphs --agent ppo --model bert-tiny --workdir runs/graphs
  tfrl train tensor_graphs --agent ppo --model resnet-50 --model model.onnx \\
      --workdir runs/several --collect pipes --workers 2

Of several models, each episode rewrites one. A policy sees graphs and rules, not their numbers, and
so can be used on models that it never saw.
"""
EVALUATE = """\
Compares how cheap policies make the graphs of models: the sum over operators of what each costs, as
measured on this machine (or what --objective says). Nothing is written; see tfrl optimize for that.

  tfrl evaluate tensor_graphs --policy regions --policy taso --model model.onnx --seconds 60
  tfrl evaluate tensor_graphs --policy greedy --policy regions --model bert-tiny --bound --json

An expansion is a rule applied whose result's cost was looked at. A model is a file, or one of
bert-base, bert-mini, bert-tiny, inception-v3, lora-transformer, nasrnn, repvgg-a0, resnet-18,
resnet-50, resnext-50, squeezenet-1.1 with random weights.
"""
BENCH = """\
Measures what a step costs: a rule applied, and all matches, the graph's cost and the masks brought
up to date; and what learning costs. Random walks of 20 steps; medians of CPU time.

  tfrl bench tensor_graphs
  tfrl bench tensor_graphs --model bert-base --model model.onnx --json

engine_step_ms_MODEL                a step
incremental_over_full_match_MODEL   searching all matches of the same graphs anew, over a step: how
                                    many times faster
environment_step_ms_MODEL           a step of the environment, with its observation
memory_growth_mib_MODEL             by how much the process grew in the last nine tenths of those
                                    steps; tells more with --steps 100000
policy_ms_MODEL                     a decision of a policy that has learned nothing
train_step_ms_MODEL                 PPO's update from the 32 graphs that it decided on
"""
