"""The sandbox: where a call may reach. Zones, safe paths, file operations, walls, child processes and the network.

In this folder: `zones` and `sandbox` (which directories a worker has), `target` and `files` (from text to an open
file), `protected` (names that need consent), `handles` and `errors` (used by all), `host` (Forge's own process).
`walls/` isolates processes, `git/` protects the user's repositories, `process/` starts and ends children, `network/` is
their only way out. Imports nothing: the `forge` command comes through here before anything else is loaded.
"""
