"""Suggestions: what agents do again and again, found in the journals, as one tool that could do it.

`looking.look` gives Suggestions; nothing here makes a tool, changes a journal or talks to a model.
"""
