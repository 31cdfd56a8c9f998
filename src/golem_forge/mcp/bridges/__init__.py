"""Bridges to other frameworks. Each is one module that imports its framework, and nothing in Forge imports a bridge."""
