"""The browser: a second subscriber of a session's bus, served on loopback from the session's own process."""
