"""Slash commands: what a person types with a `/` in front, the same for every UI."""
