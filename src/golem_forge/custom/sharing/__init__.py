"""Passing tools on: export, import, `tools.lock`, collections and Agent Skills.

What comes from elsewhere is data: it is read, bounded, checked and put in place, and no file of it is executed. An
imported tool starts as a draft that nobody trusts. `sources` says where something lies, `origins` reads it, `offer`
says what it is, `importing` and `updating` put it in place, `exporting` and `skill_export` write it for others.
"""
