"""How messages reach a server: a child in walls (`stdio`) or HTTP (`http`), and what became of each request."""
