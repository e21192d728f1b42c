"""Bad inputs for every verb of tfrl: each must end in one line, with the right exit status.

    python -m tools.benchmarks.bad_inputs [--verb VERB] [--seed S] [--json]

`verbs/` holds the cases of each verb, `damage.py` ways to damage a file. `running.py` runs a case
in a process of its own and says what is wrong with how it ended.
"""
