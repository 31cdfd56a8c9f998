"""Anchors: how long a journal was and its last hash, kept beside it in `<session id>.head`.

A file's own chain cannot show that whole lines are missing at its end, nor that all of it was written anew. The
anchor can, for everything up to the last orderly close; it is written then and on resume, never per record.
It guards against accidents and careless edits; who can replace both files can replace both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from golem_forge.events.jsontext import decode


class Anchor(NamedTuple):
    lines: int
    hash: str
    """64 hex: the hash of line `lines`."""


def anchor_path(journal: Path) -> Path:
    return journal.with_suffix(".head")


def write_anchor(journal: Path, anchor: Anchor) -> None:
    target = anchor_path(journal)
    temporary = target.with_suffix(".head.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b'{"lines":%d,"hash":"%b"}\n' % (anchor.lines, anchor.hash.encode()))
    finally:
        os.close(fd)
    temporary.replace(target)


def read_anchor(journal: Path) -> Anchor | None:
    """None where there is none; also for an unreadable one, which then proves nothing."""
    try:
        kept = decode(anchor_path(journal).read_bytes())
        return Anchor(int(kept["lines"]), str(kept["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
