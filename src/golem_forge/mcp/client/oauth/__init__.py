"""Logging in to a server over HTTP, and staying so."""
