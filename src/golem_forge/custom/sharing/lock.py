"""tools.lock: where imported tools came from, one record each, JSON sorted by name.

Takes and gives Locked records (name, source, commit, digest, version, time). A lock that cannot be read is an error and
never overwritten: it is the only memory of where tools came from. Changes are made under a lock of their own and
replace the file whole, so readers see the old or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.sharing.refusal import SharingError

_FILE: Final = "tools.lock"
_GUARD: Final = ".tools.lock.guard"
_MAX_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    name: str
    source: str
    """Pinned, as `import` takes it; of a local source its absolute path."""
    commit: str
    """Empty without git."""
    digest: str
    version: str
    time: str


def lock_path(home: ForgeHome) -> Path:
    return home.path / _FILE


def read_lock(home: ForgeHome) -> dict[str, Locked]:
    """By name, in name order; empty without a lock."""
    import json

    try:
        handle = os.open(lock_path(home), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError:
        raise _unreadable(home) from None
    try:
        with open(handle, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError:  # a directory
        os.close(handle)
        raise _unreadable(home) from None
    try:
        found = [_record(each) for each in json.loads(data)["tools"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unreadable(home) from None
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def record(home: ForgeHome, entry: Locked) -> None:
    """Adds or replaces one tool's record."""
    with _changing(home):
        _write(home, read_lock(home) | {entry.name: entry})


def drop(home: ForgeHome, name: str) -> bool:
    """Forgets a tool that was removed; False if it had no record."""
    with _changing(home):
        present = read_lock(home)
        if present.pop(name, None) is None:
            return False
        _write(home, present)
        return True


def _record(value: dict[str, object]) -> Locked:
    if not isinstance(value, dict) or any(not isinstance(value.get(field.name), str) for field in fields(Locked)):
        raise ValueError
    return Locked(**{field.name: str(value[field.name]) for field in fields(Locked)})


def _write(home: ForgeHome, records: dict[str, Locked]) -> None:
    import json

    listed = [asdict(records[name]) for name in sorted(records)]
    text = json.dumps({"tools": listed}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    temporary = home.path / f".{_FILE}-{os.urandom(8).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, lock_path(home))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _changing(home: ForgeHome) -> Iterator[None]:
    """The guard is a file of its own: the lock is replaced by each change."""
    handle = os.open(home.ensure() / _GUARD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _unreadable(home: ForgeHome) -> SharingError:
    shown = home.shown(lock_path(home))
    return SharingError(f"{shown} cannot be read; mend or remove it (tools keep working without it).")
