"""What other decisions would have saved."""
