"""The campaign of faults; see `campaign.py`."""
