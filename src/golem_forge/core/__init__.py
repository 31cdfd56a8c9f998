"""The nouns of Golem Forge as plain data. Nothing here does I/O, imports a heavy library or knows a layer above."""
