"""Deleting a session whole: journal, its `.head`, its `.files`, stored outputs, and what the index knows of it.

Refuses with SessionNotFound, and with SessionInUse while a process writes it. The journal goes last and its lock is
held until then: whoever is stopped in the middle can do it again, and nobody resumes half a session.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from golem_forge.core.errors import ForgeError
from golem_forge.events.anchors import anchor_path
from golem_forge.events.index import Index
from golem_forge.events.session_files import journal_path, open_locked


def delete_session(home: Path, session_id: str) -> None:
    journal = journal_path(home, session_id)
    lock = open_locked(journal, session_id)
    try:
        _remove(journal.with_suffix(".files"))
        _remove(home / "output" / session_id)
        head = anchor_path(journal)
        for path in (head, head.with_suffix(".head.new"), journal):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ForgeError(f"session {session_id} could not be deleted whole: {error.strerror}") from error
    finally:
        os.close(lock)
    Index(home).refresh()


def _remove(path: Path) -> None:
    """A directory with all in it. A link is removed, never followed."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
