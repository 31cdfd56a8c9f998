"""What stands inside the walls beside a user tool: the program that starts Python tools, and the way to other tools.

`shown/` is what Python tools see of Forge at `/forge/inside`; `client/` is what tools with `calls` see at `/forge/bin`.
Nothing else of Forge is visible in there. `interpreters` starts Python ahead; `calls` answers those who call.
"""
