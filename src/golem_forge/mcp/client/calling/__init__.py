"""One call of a server: its turn, its clocks, its questions, its result."""
