"""The guided demo: examples/repair on a copy, from trust to resume. `make demo` runs it."""
