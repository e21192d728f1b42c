"""Bad inputs for every verb of tfrl: each must end in one line, with the right exit status.

`damage.py` makes wrong files, JSON and arrays of right ones, `kinds.py` says what can be wrong
with each kind of input, `table.py` which argument of which verb takes which kind, and what must
hold, and `campaign.py` runs the cases, each in a process of its own.
"""
