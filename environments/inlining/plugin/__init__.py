"""The pass plugin: a policy inside a stock clang, and how it is built for the clang at hand."""
