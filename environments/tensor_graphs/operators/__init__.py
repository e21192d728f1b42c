"""The operators: types, values and floating-point operations of their outputs.

`table` lists them all and defines the canonical form of a node; `building` adds nodes to an edit;
`algebra` and `field` are two kinds of numbers that operators can be evaluated with.
"""
