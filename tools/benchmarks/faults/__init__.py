"""The parts of `fault_campaign.py`: what is run, what is broken in it, and what must come of it."""
