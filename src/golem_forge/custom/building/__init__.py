"""From a tool's folder to something that can be started, without running a line of it: checks, compilers, environments.

`builder.Builder` is the way in. Everything here works on one snapshot, inside full walls, and leaves what it made in
FORGE_HOME/cache/build under a key that says what it was made from.
"""
