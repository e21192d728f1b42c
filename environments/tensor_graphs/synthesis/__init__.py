"""Rules of tensor graphs, found and verified.

enumerate ─▶ fingerprint ─▶ generalise ─▶ verify ─▶ prune ─▶ rules.json

`verify` is for every rule, whoever wrote it.
"""
