"""Models: the interface, selection by name, providers, scripted models and the XML call format.

Nothing here executes a tool. Provider libraries load on first use (`providers` is their only importer).
"""
