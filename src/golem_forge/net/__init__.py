"""What every server of Forge shares: the listening socket and the check of `Host` headers."""
