"""Files that Forge keeps for its user: FORGE_HOME, private files, file stamps and the content store."""
