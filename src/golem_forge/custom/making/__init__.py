"""New tools: the scaffold and its templates, likeness to what exists, and `create_custom_tool`."""
