"""What operators mean: their types, their values, their work.

`table` has them all and says how a node is written down; `building` adds nodes to an edit.
"""
