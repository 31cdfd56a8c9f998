"""Sessions: the parts of a program put together, ready to take calls."""
