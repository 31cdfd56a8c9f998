"""Tools out of Python modules: imported, listed and called in child processes inside the worker's walls."""
