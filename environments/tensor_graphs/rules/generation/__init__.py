"""Generate rules: enumerate, fingerprint, generalise, verify, prune (thesis, section 3.1)."""
