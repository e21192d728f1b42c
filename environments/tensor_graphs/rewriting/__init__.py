"""Apply rules to graphs: find where a rule matches, and make the graph that it leads to."""
