"""Deep-learning graphs: substitutions that make a model faster and leave what it computes."""
