"""Bad inputs for every verb of tfrl: each must end in one line, with the right exit status.

`table.py` says which argument of which verb takes what kind of input, `damage.py` and the files
beside it what can be wrong with each kind, and `running.py` runs a case in a process of its own and
says what is wrong with how it ended.
"""
