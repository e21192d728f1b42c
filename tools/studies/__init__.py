"""Studies: what makes the tables of RESULTS.md, each a short declaration for one runner.

    python -m tools.studies                       # which there are
    python -m tools.studies quality --help
    python -m tools.studies quality --output runs/quality --seeds 5 --jobs 2

A study says which trials there are (systems, agents, settings, seeds), how one is measured, and
which tables and pictures are made of the records (`study.py`). The runner measures each trial once,
keeps what it measured as JSON, and goes on where it was stopped (`runner.py`).
"""
