"""World models: what an environment would do, learned from what it did.

mdn_rnn.py   the model: latents, memories, and heads that predict the next step
dream.py     the model as an environment, and whole dreams in one graph function
fitting.py   the experience so far, and the model's training on it
judging.py   how far predictions and reality are apart
"""
