"""Rules taken over from TASO's rule file."""
