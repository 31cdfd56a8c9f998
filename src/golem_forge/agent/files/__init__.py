"""Worker files and what stands in them: reading, checking, references between them, their `toolsets:` blocks."""
