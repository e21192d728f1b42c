"""Is a rule right? Random instances of it, compared exactly and in floating point."""
