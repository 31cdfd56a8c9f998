"""The pool of servers: their processes, connections, names and trust, and their tools on the one path."""
