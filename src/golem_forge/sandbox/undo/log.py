"""The change log of a session: a ChangeSet a line in FORGE_HOME/sessions/<id>.changes, each with a hash of all before.

The journal has the hash of each line (event `filesChanged`), so the two can be compared. `read` gives what is complete:
a line that a crash cut short is left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from golem_forge.core.changes import ChangeSet
from golem_forge.core.lazy_dataclass import replace
from golem_forge.storage.home import READ_FLAGS, make_private_dir

UNDO_TOOL: Final = "undo_changes"
"""The tool whose change sets are undos."""
UNDONE: Final = "undone"
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_TAIL: Final = 1 << 26


class SessionChangeLog:
    def __init__(self, home: Path, session: str) -> None:
        self.path = home / "sessions" / f"{session}.changes"

    def append(self, made: ChangeSet) -> str:
        """The hash of the new line, which says when it was written. Raises OSError."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        made = replace(made, at=made.at or now)
        make_private_dir(self.path.parent)
        fd = os.open(self.path, _APPEND, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            last, torn = _last_hash(fd)
            text = json.dumps(made.to_json(), separators=(",", ":"))
            chain = sha256(f"{last}\n{text}".encode()).hexdigest()
            line = f'{{"hash":"{chain}","set":{text}}}\n'
            os.write(fd, (("\n" if torn else "") + line).encode())
        finally:
            os.close(fd)
        return chain

    def read(self) -> tuple[ChangeSet, ...]:
        """Oldest first; nothing where the session changed nothing, or was recorded by an earlier Forge."""
        found = []
        for line in self._lines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found.append(ChangeSet.from_json(json.loads(line)["set"]))
        return tuple(found)

    def problems(self, recorded: Iterable[str]) -> Iterator[tuple[int, str]]:
        """(line, what is wrong): a line that was changed, taken out or put in. `recorded`: the hashes that the journal
        has. An undo is a session of its own, and its line stands in the log of the session whose calls it takes back.
        """
        last, found = "", set()
        for number, line in enumerate(self._lines(), 1):
            try:
                chain = json.loads(line)["hash"]
            except (ValueError, KeyError, TypeError):
                continue  # cut short by a crash; the next one follows the line before
            text = line.partition(b',"set":')[2].removesuffix(b"}")
            if chain != sha256(f"{last}\n".encode() + text).hexdigest():
                yield number, "was changed, or one before it was"
                return
            last = chain
            found.add(chain)
        lacking = set(recorded) - found
        if lacking:
            lacking -= {chain for other in self.path.parent.glob("*.changes") for chain in _hashes(other)}
        if missing := len(lacking):
            yield len(found) + 1, f"{missing} that the journal names {'is' if missing == 1 else 'are'} missing"

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _lines(self) -> list[bytes]:
        try:
            fd = os.open(self.path, READ_FLAGS)
        except OSError:
            return []
        with os.fdopen(fd, "rb") as file:
            return file.read().splitlines()


def _hashes(path: Path) -> Iterator[str]:
    with contextlib.suppress(OSError), path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                yield json.loads(line)["hash"]


def taken_back(sets: Sequence[ChangeSet]) -> dict[str, str]:
    """Call id → `undone` or `undone in part`, of those that undo has taken back and redo has not brought again."""
    by_call: dict[str, list[ChangeSet]] = {}
    for each in sets:
        by_call.setdefault(each.call, []).append(each)
    undos: dict[str, list[ChangeSet]] = {}
    for each in sets:
        for call in each.undoes:
            undos.setdefault(call, []).append(each)
            for again in {inner for one in by_call.get(call, ()) for inner in one.undoes}:  # an undo that is undone
                undos[again] = [one for one in undos.get(again, ()) if one.call != call]
    found: dict[str, str] = {}
    for call, made in undos.items():
        both = (by_call.get(call, ()), made)
        paths, restored = ({one.path for set_ in some for one in set_.changes} for some in both)
        if made:
            found[call] = UNDONE if paths <= restored else "undone in part"
    return found


def _last_hash(fd: int) -> tuple[str, bool]:
    """Of the last complete line, and whether the file ends in the middle of one."""
    size = os.fstat(fd).st_size
    data = os.pread(fd, min(size, _LONGEST_TAIL), max(0, size - _LONGEST_TAIL))
    torn = bool(data) and not data.endswith(b"\n")
    for line in reversed(data.splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(json.loads(line)["hash"]), torn
    return "", torn
