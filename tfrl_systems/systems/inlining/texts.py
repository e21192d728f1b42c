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
margin with which their projects shrink most and none grows; they are also linked, and neither the
code of an image nor all that it loads may grow. The best iteration's policy is written.
What is to become smaller is the linked program: a function that n objects hold counts 1/n in each
(--set objective=code counts code without unwind tables, object the objects themselves).
It can begin with the policies of other runs, and imitates in each module the one that did best.
ppo and reinforce begin with LLVM's own decisions, too. They get one reward at the end of each
compile, and so need many more compiles.
"""
EVALUATE = """\
Compiles every module of a corpus under each policy and compares the objects with those of LLVM's
own -Oz decisions.

  tfrl evaluate inlining --corpus runs/corpus/heldout --link
  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/corpus/heldout
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --never-worse --json
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --link

Sizes are the text column of llvm-size (code, read-only data, unwind tables); "exec" counts
executable sections only. --link also links the objects of each project with the built-in lld as
people do who care for size, with --gc-sections and --icf=all, and compares the images: a program
from its main, a library as a shared one.
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

BUILD = """\
Runs COMMAND, and lets a policy decide what its clangs inline. Without --policy it is the one that
comes with the installation, so that nothing need be trained.

  tfrl build -- make -j8
  tfrl build --tune -- cmake --build b               never larger than plain: the best of several
  tfrl build --policy runs/quickstart/policy -- make -j8
  tfrl build --policy default -- ninja -C b          as COMMAND alone: LLVM's own decisions
  tfrl build --compare plain/ -- ninja               sizes beside those of a plain build in plain/

The tree stays configured as it is. Only functions that are compiled for size (-Oz) are decided by
the policy; -Os, as CMake's MinSizeRel has it, is not enough. Each stock clang from LLVM 19 on is
steered whose headers are there (llvm-N-dev); a plugin for it is built on first use and kept. GCC,
other clangs, clang-cl, zig, the assembler and links go their way. What cannot be steered is
compiled as it would be alone, and named at the end. The exit status is COMMAND's.

With link-time optimisation (-flto) LLVM inlines when it links, so nothing is steered.

--tune builds with five margins: the policy's own, three near it, and LLVM alone. A margin says how
sure the policy must be to depart from LLVM. The total of code, unwind tables and read-only data in
the images that COMMAND links decides; a margin by which the code of one of them, or its total, is
larger than plain is out.
The tree is left with the best, and tfrl.margins in the directory that COMMAND builds in says so to
later builds with the same policy.

--tune costs about six builds. Before each but the first, the objects and images that COMMAND has
written since --tune began are removed, and no other files, so that it writes them again. What was
there before stays as it is: clean the tree first if all of it is to count. If COMMAND fails, or
does not write one of them again, they are put back.

Clangs learn of the policy from environment variables (CCC_OVERRIDE_OPTIONS, TFRL_INLINING_LOG,
TFRL_INLINING_CONFIG and, with --tune and tfrl.margins, TFRL_INLINING_MARGIN), so a build that gives
its compilers an environment of its own, as SCons and Bazel do, has to let these through.

Make and Ninja compile only what has changed: to have everything decided by the policy, clean first.
ccache and sccache know the policy and give no objects of another one; Go gets a cache for each.
"""

EXPORT = """\
  tfrl export --format clang-plugin --compiler clang-19 -o inliner.so
  clang-19 -Oz -fpass-plugin=./inliner.so -c x.c

clang-plugin is one file for one clang and needs nothing else installed. It decides where functions
are compiled for size (-Oz) and nowhere else. It is built with the headers of that clang's LLVM
(llvm-N-dev) and a C++ compiler. `tfrl build` does all of this by itself for a whole build.

  tfrl train inlining --agent bc_max --corpus runs/mine --workdir runs/mlgo \\
    --set scope=all --set features=cost_estimate,callee_users,callee_basic_block_count
  tfrl export --policy runs/mlgo/policy --format mlgo -o model

mlgo is a directory for those who build LLVM with a model inside, laid out as ml-compiler-opt does:
a SavedModel and output_spec.json. LLVM feeds it its own features alone, and no linkage or history;
a policy that needs others is refused.
"""

CORPUS_BUILD = """\
Compiles sources to LLVM bitcode as clang hands it to -Oz, one module for each source.

  tfrl corpus build build/compile_commands.json -o runs/mine
  tfrl corpus build third_party/zlib src/ -o runs/mine --jobs 4
  tfrl corpus build saved/*.bc -o runs/mine

SOURCE is a compile_commands.json, a directory (with one, or a tree of C and C++ sources, or of
bitcode), a C or C++ file, or a bitcode file. CMake writes a compile_commands.json with
-DCMAKE_EXPORT_COMPILE_COMMANDS=ON. A module's name begins with its project: the name of the top
directory of its sources, where the outermost build file is, or NAME with --project NAME. (Folders
of one project, given side by side, count as projects of their own.) Building again compiles only
what changed.

A compile_commands.json may be written for any compiler and machine, with launchers (ccache, nice,
cmake -E env) and response files (@FILE): options that the corpus's compiler refuses are left out.
What does not compile is named, and listed in DIR/not_compiled.json with the compiler's first error;
so is a damaged entry. Sources that are neither C nor C++ are counted by their kind.
"""

CORPUS_INFO = """\
Describes a corpus: projects, languages, modules, bytes of bitcode. Corpora that ml-compiler-opt's
tools extracted are read too.

  tfrl corpus info runs/mine
"""
