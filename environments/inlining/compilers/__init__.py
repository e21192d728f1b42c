"""Compilers that ask a policy for each decision: their channel, processes and object sizes."""
