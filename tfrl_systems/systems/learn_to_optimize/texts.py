"""The help text of each verb for learn_to_optimize."""

from __future__ import annotations

TRAIN = """\
Learns a policy that gives the x of the least f(x; c) for any free parameters c at once.

  tfrl train learn_to_optimize --agent ppo --function shifted_ackley --workdir runs/ackley
  tfrl train learn_to_optimize --agent ppo --function plant:cost --dimensions 3 --free 1 \\
      --bounds -5,5 --workdir runs/plant --collect pipes --workers 2
  tfrl train learn_to_optimize --agent bc_max --function shifted_ackley --workdir runs/imitated
  tfrl train learn_to_optimize --agent surrogate --function plant:cost --workdir runs/few \\
      --set evaluations=200 --collect pipes --workers 2
  tfrl train learn_to_optimize --agent surrogate --log trials.csv --workdir runs/logged

bc_max imitates the best answer of scipy, of the last policy and of descents from it, for each c.
surrogate is for functions that are dear: a Gaussian process of f over (x, c) says which few hundred
points to evaluate, and the policy learns its minima. A failure is learned from too. Each evaluation
is written to trials.csv as soon as it is made, and --resume asks for none again. answers.csv says
for each c how sure the model is. --log learns from trials that were made before, alone or with
--function: a CSV file with the columns x0, x1, ..., c0, ..., value, in the function's own units.
world_model is for systems whose states follow each other; here surrogate needs less. The policy is
the same for every --collect and every --workers.

What a run costs, in evaluations of f, is said at its start, and counted in result.json:

  once              256, for the scale of the rewards
  every iteration   ppo, reinforce 3,072; es 6,144; world_model 480; bc_max as many as the teachers
                    and the descents take, some 700,000; surrogate 10
  by default        ppo, reinforce 31 million; es 6 million; world_model 20,000; bc_max 35 million;
                    surrogate 200, and nothing else
  every validation  one for each of 21 c, with several free parameters for 100

A policy is judged by the mean of the values that it reaches. --set judge=truth judges it by the
least values instead, which takes a search of 57,000 to many million evaluations more.

Your own function runs in a process of its own: it may print, and if it crashes, one line says
where. A run goes on only with the function as it was: its bounds, its source, and that of the
modules beside it.
"""
EVALUATE = """\
Compares what policies choose with the minimum of the function, for every free parameter in
{-1, -0.9, ..., 1}. With several free parameters it takes all combinations, at most 1,000 of them.

  tfrl evaluate learn_to_optimize --policy runs/ackley/policy --policy scipy --policy constant
  tfrl evaluate learn_to_optimize --policy runs/ackley/policy --polish 10
  tfrl evaluate learn_to_optimize --policy random --policy scipy --function rosenbrock --json

cost  mean of f(policy(c), c)
mse   mean square of f(policy(c), c) - min over x of f(x, c)
msle  the same of sign(v) log(1 + |v|) of both values
regret  mean of f(policy(c), c) - min over x of f(x, c), and where it lies for other c (95%)
learned from  the evaluations that learning took, where the run's result.json is beside the policy
The least values are searched for, once for each function. What that takes is said, and shown apart;
--judge values does without, and shows only the mean value that is reached (cost).
With --polish N a learned policy's answer is made better by at most N evaluations of the function.
Without --function, the function, dimensions and free parameters are those of the first directory.
"""
BENCH = """\
Measures what collecting and learning cost, compared with other libraries that do the same work: 64
episodes of 2 steps of Ackley in two dimensions, PPO's policy of two hidden layers of 64 units, one
thread for TensorFlow. Times are medians of wall time, measured in turns. cpu_ratio is the ratio in
CPU time of this process and its children, which other programs on the machine disturb less.

  tfrl bench learn_to_optimize
  tfrl bench learn_to_optimize --only collect_ms --only numpy_actor_over_tf_actor
  chrt -f 1 tfrl bench learn_to_optimize --json      (as root: before all other programs)

collect_ms           ours: NumPy policy, batched environment, one chunk of 64, in this process
collect_over_...     another library's time divided by ours
    ..._eager_driver                  TF-Agents' DynamicEpisodeDriver as its tutorials call it
    ..._tf_function_driver            the same in a tf.function
    ..._parallel_py_environment       the same with TF-Agents' ParallelPyEnvironment of 2 processes
    ..._stable_baselines3             Stable-Baselines3 PPO.collect_rollouts (with values and
                                      advantages), DummyVecEnv of 64; needs the extra "bench"
numpy_actor_over_tf_actor
                     collecting with a TensorFlow policy, divided by collecting with NumPy
pipes_collect_ms_2_workers
                     collecting by 2 processes, 32 episodes each, with reading, sending and loading
                     the policy's variables
pipes_scaling_sleep_1ms_K
                     an environment that sleeps 1 ms in every step: this process's time divided by
                     that of K workers
gymnasium_vector_over_batched
                     the same episodes through Gymnasium's vector interface, divided by those in the
                     batched environment by itself; needs the extra "gymnasium"
broadcast_ms         to read the policy's variables from TensorFlow and load them into NumPy
query_us, query_us_per_row
                     policy(c) -> x for one c, and for each of many at a time
train_step_ms        PPO's training on the collected episodes
ppo_iteration_ms     PPO: 1024 episodes of 2 steps, two epochs, two layers of 32 units
ppo_iteration_over_...
                     the time of another library divided by ours; needs the extra "bench"
    ..._stable_baselines3             Stable-Baselines3's PPO, DummyVecEnv of 1024
    ..._stable_baselines3_vectorised  the same with one environment of 1024 rows
"""

EXPORT = """\
  tfrl export --policy runs/ackley/policy --format onnx -o optimiser.onnx

onnx is a learned optimiser as a model from c [N, k] to x, all scaled to [-1, 1], for onnxruntime.
"""
