"""BC-Max for inlining: labels of single decisions, margins, and judging by compiling."""
