"""Rules applied to graphs: where they match, and what becomes of the graph there."""
