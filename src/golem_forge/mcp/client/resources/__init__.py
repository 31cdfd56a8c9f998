"""Resources as native tools, prompts as commands."""
