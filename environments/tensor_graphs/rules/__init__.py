"""Rules for rewriting graphs: their language, their verification, and where they come from."""
