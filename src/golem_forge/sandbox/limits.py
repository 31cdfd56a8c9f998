"""Limits of one child process tree. They are settings, so they live with the configuration, below the sandbox."""

from __future__ import annotations

from golem_forge.config.wall_settings import GIB, MIB, Limits

__all__ = ["GIB", "MIB", "Limits"]
