"""`tfrl optimize`: the road from a model to one that is faster and computes the same.

request        what may be asked for
optimization   the road, a step a line; also for a model that is not in a file
  task         the model, the user's inputs, the policy; sizes that the model leaves open, and
               inputs to compare and measure on
  searching    states that cost less, within the time that there is
  checkpoint   the file to go on from, if the search is killed
  judging      which of them compute the same, which is faster, and what each of its rules saves
  quantizing   int8 in some nodes, if that is asked for
  outcome      what came out, as text and JSON; `page` shows it in a browser
  writing      the faster model, or a copy, and the report
"""
