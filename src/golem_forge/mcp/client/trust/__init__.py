"""What a person agreed to: servers that may start, definitions that were seen. Pins and drift."""
