"""From a config to a living connection, and back: one owner a server, one task a connection."""
