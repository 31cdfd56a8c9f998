"""Forge in an editor: the agent side of the Agent Client Protocol, a third UI on the same events and questions.

`cli/acp.py` starts it. The SDK's schema is imported by `agent.py` alone.
"""
