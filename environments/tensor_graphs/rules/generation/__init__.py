"""Rules found by machine: enumerate, fingerprint, generalise, verify, prune (thesis, 3.1)."""
