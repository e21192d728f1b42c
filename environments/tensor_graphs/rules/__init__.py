"""Rules: what may be computed in another way. Their language, their proofs, their origins."""
