"""`tfrl optimize`: from a model to one that is faster and computes the same.

optimization   the whole way, and what may be asked
│  stages      the search for candidates, within the time that was asked for
│  outcome     what came out, as text and JSON; `page` as a page for a browser
│  freezing    fixed sizes for the written model
│  writing     the file, which is opened before it takes its place
in_memory      the same for models that are no files
"""
