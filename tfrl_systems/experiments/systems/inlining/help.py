"""The help text of each verb for inlining."""

from __future__ import annotations

TRAIN = """\
Learns which call sites to inline so that objects become smaller than clang -Oz makes them.

  tfrl train inlining --agent bc_max --corpus runs/corpus/train --workdir runs/first
  tfrl train inlining --agent bc_max --corpus runs/corpus/train --holdout runs/corpus/heldout \\
      --workdir runs/second --compiler clang-22 --iterations 3 --set model=trees
  tfrl train inlining --agent ppo --corpus runs/corpus/train --workdir runs/third

bc_max explores around LLVM's own decisions and imitates the best: it is what makes code smaller
here. ppo and reinforce learn from whole compiles alone, each paid for at its end, beginning with
LLVM's own decisions; they need many more compiles.
"""
EVALUATE = """\
Compiles every module of a corpus under each policy and compares the objects with those of LLVM's
own -Oz decisions.

  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/corpus/heldout
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --never-worse --json

Sizes are the text column of llvm-size (code, read-only data, unwind tables); "exec" counts
executable sections only.
"""
BENCH = """\
Measures what learning costs beside plain compiling: every figure is of the same modules, in turns,
on one processor, as CPU time of this process and of all compilers; of each figure the median.

  tfrl bench inlining
  tfrl bench inlining --corpus runs/corpus/heldout --policy runs/first/policy --compiler clang-22

scored_trajectory_cpu_over_clang
                     a compile under the policy, features and size reading included, over a plain
                     clang -Oz -c of the same modules by the same clang
embedded_scored_trajectory_cpu_over_clang
                     the same with the embedded LLVM, over the same plain clang
..._of_the_median_module
                     the same ratio for the median module: the others are of sums, which large
                     modules decide
policy_us_per_decision, channel_us_per_decision
                     CPU time of one decision of the policy; what asking adds to a plain compile
trajectories_per_second
                     of the embedded LLVM with --workers, none recalled from a cache

Without --corpus a small one is compiled from sources that come along; without --policy one of the
usual size is fitted to LLVM's own decisions.
"""
