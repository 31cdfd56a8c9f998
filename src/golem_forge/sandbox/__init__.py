"""Where may a call reach? Zones, safe paths and the file operations on what was judged."""
