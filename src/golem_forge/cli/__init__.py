"""The `forge` command, one file a verb."""
