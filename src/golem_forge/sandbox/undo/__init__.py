"""Undo: what calls changed in the zones, and bringing it back.

    capture   before a call that may change a zone: what could be lost is in the store (`zone_history.py`,
              `zone_files.py`, `store.py`)
    record    after it: what changed, path by path, as a ChangeSet of the session (`log.py`)
    restore   when a person asks: files, links, directories and refs as they were (`restore.py`)

`ZoneHistory.coverage` says what of a zone could not be brought back.
"""
