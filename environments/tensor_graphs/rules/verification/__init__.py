"""Verify rules: compare both sides in random instances, exactly and in floating point."""
