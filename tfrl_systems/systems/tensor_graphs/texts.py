"""The help text of each verb for tensor_graphs."""

from __future__ import annotations

TRAIN = """\
Learns which rule to apply where, so that graphs of tensor operations cost less.

  tfrl train tensor_graphs --agent ppo --model bert-tiny --workdir runs/graphs
  tfrl train tensor_graphs --agent ppo --model resnet-50 --model model.onnx \\
      --workdir runs/several --collect pipes --workers 2
  tfrl train tensor_graphs --agent bc_max --model families --objective analytic \\
      --workdir runs/imitated
  tfrl train tensor_graphs --agent world_model --model bert-tiny --workdir runs/dreams

With several models, each episode rewrites one of them. A family (transformers, adapters,
convolutional, branches, recurrent, or families for all) draws a new small model for each episode,
FAMILY:NUMBER with a number below 1000000. Evaluations during training take numbers from 1000000
on; none from 2000000 on are used, so these can test what was learned. With --objective analytic
that takes minutes; any other one has to measure the operators of each new model.

A policy sees what a graph and a rule consist of, so it can be used on models that it never saw.
bc_max imitates the best of several searches and of its own last policy in each context. It needs
minutes, and is the agent to take for a policy that is good on other models. What it learns from
measured costs it can also use where nothing was measured: --set shown_costs=roofline shows it only
costs that are worked out, and --set may_stop=true teaches it where to stop. world_model needs few
steps of the real engine: it learns what steps do, and trains the policy on that. Its policy knows
rules by their numbers, so it is for the models that it learned on.
"""
EVALUATE = """\
Compares how cheap policies make the graphs of models. A graph's cost is the sum over its operators,
each measured on this machine (or as --objective says). Nothing is written; see tfrl optimize.

  tfrl evaluate tensor_graphs --policy regions --policy taso --model model.onnx --seconds 60
  tfrl evaluate tensor_graphs --policy shipped --policy regions --model bert-tiny --bound --json
  tfrl evaluate tensor_graphs --policy regions --policy regions:runs/graphs/policy \\
      --policy runs/graphs/policy --model bert-mini

An expansion is one application of a rule whose result was costed. A model is a file, or one of
bert-base, bert-mini, bert-tiny, inception-v3, lora-transformer, nasrnn, repvgg-a0, resnet-18,
resnet-50, resnext-50, squeezenet-1.1 with random weights, or a member of a family, such as
transformers:7.
"""
BENCH = """\
Measures what a step costs: applying a rule, and updating all matches, the graph's cost and the
masks. Also measures what learning costs. Walks of 20 random steps; medians of CPU time.

  tfrl bench tensor_graphs
  tfrl bench tensor_graphs --model bert-base --model model.onnx --json

engine_step_ms_MODEL                a step
incremental_over_full_match_MODEL   searching the whole graph for all matches, divided by a step
environment_step_ms_MODEL           a step of the environment, with its observation
memory_growth_mib_MODEL             how much the process grew in the last nine tenths of those
                                    steps; --steps 100000 says more
policy_ms_MODEL                     a decision of a policy that has learned nothing, on each graph
                                    of an episode
policy_again_ms_MODEL               the same, once it has met all graphs of the episode
train_step_ms_MODEL                 PPO's update from 32 decisions
dream_steps_per_second              steps of a world model of the first model, with the controller
"""

OPTIMIZE = """\
Rewrites an ONNX model by verified rules so that it runs faster and computes the same.

  tfrl optimize model.onnx
  tfrl optimize model.onnx -o fast.onnx --inputs examples.npz --report report.html
  tfrl optimize model.onnx -o fast.onnx --policy runs/graphs/policy
  tfrl optimize model.onnx -o fast.onnx --dimension batch=8 --objective onnxruntime-cuda
  tfrl optimize model.onnx -o fast.onnx --dimension width=160,320 --dimension 'x[0]=1'
  tfrl optimize model.onnx -o fast.onnx --strict
  tfrl optimize model.onnx -o fast.onnx --contrib --threads 4
  tfrl optimize model.onnx -o small.onnx --quantize --max-error 0.02 --inputs samples.npz

A search looks for graphs that cost less, operator by operator, as measured on this machine. Its
best candidates are run beside MODEL, on random inputs and on yours, and dropped if an output
differs by more than a relative 1e-4 (float32), 2e-2 (float16) or one unit (8-bit integers). The
others are measured end to end against MODEL in turns, next to a second copy of MODEL, which tells
how far equal models differ. One is written only if it is faster than that, and not slower than
MODEL at whichever level of onnxruntime's optimisation suits MODEL best. Otherwise OUT is a copy of
MODEL, and "no gain available" says why.

A size that MODEL leaves open has the file's own name (batch, p2o.DynamicDimension.0), or
INPUT[AXIS]. The first size given for it leads the search; OUT is right and not slower at any of
those given. If none is given, a batch is 1, and for the others usual sizes are tried until MODEL
runs. What was chosen is printed with the options that change it. Half and double of it are measured
too, or said not to be where --seconds is over; outputs are compared there in any case. --inputs
FILE.npz gives sizes and values from real data.

--threads N measures operators, candidates and results with N threads of onnxruntime in each
operator. The result is then slower than MODEL neither on N threads nor on one.

--contrib also uses operators that onnxruntime's CPU provider alone has, such as Attention.

--quantize --max-error E --inputs FILE.npz also makes nodes int8, by ranges that are computed when
the model runs (dynamic) or come from the samples (static). Outputs stay within the relative error
E on the samples; what is measured faster than the float model is written. It takes --seconds
longer.

A policy comes with the installation. It has learned from measured costs of other models what pays,
and sees none, so its steps are tried before anything is measured here.

--policy DIR lets another learned policy lead the search: it plays first, and the search goes on
from the cheapest graph that it finds. With --method policy it plays alone.

--seconds bounds everything before the candidates are compared and measured. Operators whose
measurement does not fit in are estimated by a formula. All of it ends within --seconds + 2 x
--measure-seconds + 30 s, and within 12 s with --seconds 5 alone, unless MODEL takes long to open.

Rules are right for numbers. Some may turn a NaN or an infinity into a number: x / y * y becomes x,
also where y is 0. Some may lose digits where large numbers cancel: (x - c) * a becomes
x * a - c * a. --strict leaves both kinds out. For integers, which wrap around, and truth values
rules are used only if they give exactly the same.

Ctrl-C ends the search and goes on with the best so far; pressed again, it ends the program.
"""
