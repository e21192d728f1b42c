"""The help text of each verb for inlining."""

from __future__ import annotations

TRAIN = """\
Learns which call sites to inline so that objects become smaller than clang -Oz makes them.

  tfrl train inlining --agent bc_max --corpus runs/corpus/train --workdir runs/first
  tfrl train inlining --agent bc_max --corpus runs/corpus/train --holdout runs/corpus/heldout \\
      --workdir runs/second --compiler clang-22 --iterations 3
  tfrl train inlining --agent ppo --corpus runs/corpus/train --workdir runs/third
  tfrl train inlining --agent bc_max --corpus runs/corpus/train --workdir runs/fourth \\
      --set baselines=default,runs/third/policy

bc_max explores around LLVM's own decisions and imitates the best ones. It makes code smallest.
After each iteration it compiles the modules of --validation with the new policy, and takes the
margin with which their projects shrink most and none grows. The best iteration's policy is written.
What is to become smaller is the linked program: a function that n objects hold counts 1/n in each
(--set objective=object counts the objects themselves).
It can begin with the policies of other runs, and imitates in each module the one that did best.
ppo and reinforce begin with LLVM's own decisions, too. They get one reward at the end of each
compile, and so need many more compiles.
"""
EVALUATE = """\
Compiles every module of a corpus under each policy and compares the objects with those of LLVM's
own -Oz decisions.

  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/corpus/heldout
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --never-worse --json
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --link

Sizes are the text column of llvm-size (code, read-only data, unwind tables); "exec" counts
executable sections only. --link also links the objects of each project with the built-in lld, so
that copies of functions are merged, and compares the images: a program from its main, a library
whole.
"""
BENCH = """\
Measures what learning costs, compared with plain compiling. All ways compile the same modules in
turns on one processor. Figures are CPU time of this process and all compilers, medians of the
rounds.

  tfrl bench inlining
  tfrl bench inlining --corpus runs/corpus/heldout --policy runs/first/policy --compiler clang-22

scored_trajectory_cpu_over_clang
                     a compile under the policy, with its features and sizes, divided by a plain
                     clang -Oz -c of the same modules with the same clang
embedded_scored_trajectory_cpu_over_clang
                     the same with the embedded LLVM, divided by the same plain clang
..._of_the_median_module
                     the same ratio for the median module; the ratios above are of sums, in which
                     large modules count most
steered_build_cpu_over_plain
                     a compile by clang with the policy inside it, as tfrl build does it, divided by
                     the same plain clang; plugin_us_per_decision is the time that the derived
                     features and the policy take in it
huge_function_cpu_over_plain_2250, ..._9000, ..._18000
                     the same for a generated function of so many calls; with huge_function_default_
                     in front, for tfrl build --policy default and all that it does around clang
policy_us_per_decision, channel_us_per_decision
                     CPU time of one decision of the policy, and what asking for it adds
trajectories_per_second
                     compiles of the embedded LLVM with --workers processes, without the cache

Without --corpus, a small corpus is compiled from sources in this package. Without --policy, a
policy of the usual size is fitted to LLVM's own decisions.
"""
