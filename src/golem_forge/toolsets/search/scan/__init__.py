"""A search that can be killed: runs as a program of its own, with nothing but the standard library and what it is
handed. Forge itself uses only its globs."""
