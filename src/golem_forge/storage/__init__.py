"""Files that Forge keeps for its user: FORGE_HOME, file stamps and the content store."""
