"""Inlining in LLVM: which call sites to inline, for size."""
