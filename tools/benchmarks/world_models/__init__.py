"""The parts of `world_model_tables.py`."""
