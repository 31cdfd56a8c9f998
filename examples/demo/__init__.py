"""The guided demo: examples/repair from trust to resume, then examples/toolmaker; on copies. `make demo` runs it."""
