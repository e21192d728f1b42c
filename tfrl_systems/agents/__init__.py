"""Learning algorithms: each file has a `Config` and a `make_agent`."""
