"""Programs that run as they are. `python -m examples.demo` is what `make demo` runs."""
