"""Twelve small tasks for a small model on this machine: Forge and a minimal agent on the same server."""
