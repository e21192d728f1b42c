"""Import rules from TASO's rule file."""
