"""Our figures beside those of comparable libraries, measured in one run: `make bench` or `python -m benchmarks`."""
