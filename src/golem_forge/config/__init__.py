"""Configuration: strict YAML with file, line and nearest key; the program, the person's config, trust."""
