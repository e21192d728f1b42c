"""What graphs cost: worked out, or measured operator by operator and remembered."""
