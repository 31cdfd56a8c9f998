"""Models: naming one, asking it, what it costs. Nothing here executes a tool; provider libraries load on first use."""
