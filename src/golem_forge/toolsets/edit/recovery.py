"""Recovery: patches that a crash cut short are taken back, file by file, as far as nobody has touched them since.

Takes FORGE_HOME and a sandbox whose zones may be changed, gives one text per patch for whoever starts the session.
A file that no longer has the patch's bytes is left alone and named; so is one in no zone of this sandbox, and its
patch waits for a session that has the zone. Names out of a manifest are used only if they look like Forge's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from enum import Enum, auto
from pathlib import Path
from typing import Final

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.access import CONTENT, DIRECTORY, Handle, identity_of
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.toolsets.edit.manifest import FileRecord, LeftBehind, left_behind

_OWN_NAME: Final = re.compile(r"\.forge-[0-9a-f]{16}\.tmp")
_CHUNK: Final = 1024 * 1024


class _Fate(Enum):
    AS_BEFORE = auto()
    RESTORED = auto()
    LEFT = auto()
    LEFT_BESIDE_ITS_OLD_CONTENT = auto()
    ELSEWHERE = auto()


def recover(home: Path, sandbox: Sandbox) -> list[str]:
    """Call it at the start of a session, before anything else changes files."""
    return [text for patch in left_behind(home) if (text := _taken_back(patch, sandbox))]


def _taken_back(patch: LeftBehind, sandbox: Sandbox) -> str:
    fates: dict[FileRecord, _Fate] = {}
    for record in reversed(patch.files):
        target = _find(record, sandbox)
        if target is None:
            fates[record] = _Fate.ELSEWHERE
            continue
        with target:
            fate = _Fate.AS_BEFORE if patch.done else _restored(record, target)
            if fate is _Fate.LEFT and _is_kept(record, target):
                fate = _Fate.LEFT_BESIDE_ITS_OLD_CONTENT
            else:
                _unlink(record.kept, target)
            fates[record] = fate
            _unlink(record.temp, target)
            if fate in (_Fate.AS_BEFORE, _Fate.RESTORED) and not record.existed and not patch.done:
                _remove_made(record, target)
    if _Fate.ELSEWHERE not in fates.values():
        patch.manifest.remove()
    return "" if patch.done else _told(fates)


def _told(fates: dict[FileRecord, _Fate]) -> str:
    lines = ["A patch was cut short by a crash and has been taken back."]
    if restored := [record.path for record, fate in reversed(fates.items()) if fate is _Fate.RESTORED]:
        lines.append(f"Restored: {', '.join(restored)}")
    for record, fate in reversed(fates.items()):
        if fate is _Fate.LEFT:
            lines.append(f"Not restored: {record.path} was changed since.")
        elif fate is _Fate.LEFT_BESIDE_ITS_OLD_CONTENT:
            where = f"its old content is in '{record.kept}' beside it"
            lines.append(f"Not restored: {record.path} was changed since; {where}.")
        elif fate is _Fate.ELSEWHERE:
            lines.append(f"Not restored: {record.path} is in no zone that can be written here.")
    return "\n".join(lines)


def _find(record: FileRecord, sandbox: Sandbox) -> Target | None:
    """The very place the patch changed: a zone of the same name may lead elsewhere today."""
    for path in (record.path, record.real):
        with contextlib.suppress(SandboxError):
            target = sandbox.target(path, Verb.WRITE)
            if target.real == record.real:
                return target
            target.close()
    return None


def _restored(record: FileRecord, target: Target) -> _Fate:
    now = _digest_of(target)
    if now == (record.before or None) and target.exists == record.existed:
        return _Fate.AS_BEFORE
    if now != (record.after or None):
        return _Fate.LEFT
    try:
        return _put_back(record, target) if record.existed else _take_out(target)
    except OSError:
        return _Fate.LEFT


def _put_back(record: FileRecord, target: Target) -> _Fate:
    directory = target.parent
    if directory is None or target.missing > 1 or not _OWN_NAME.fullmatch(record.kept):
        return _Fate.LEFT
    with contextlib.closing(Handle(os.open(record.kept, CONTENT, dir_fd=directory.fd))) as kept:
        if record.before and _digest(kept) != record.before:
            return _Fate.LEFT
    os.rename(record.kept, target.name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    return _Fate.RESTORED


def _take_out(target: Target) -> _Fate:
    if target.parent is None:
        return _Fate.LEFT
    os.unlink(target.name, dir_fd=target.parent.fd)
    return _Fate.RESTORED


def _remove_made(record: FileRecord, target: Target) -> None:
    above = target.parts[:-1]
    for depth in range(len(above), max(len(above) - record.made, 0), -1):
        with contextlib.suppress(OSError):  # not empty: used by now
            if target.zone is not None:
                parent = target.zone.open(above[: depth - 1], DIRECTORY)
                os.rmdir(above[depth - 1], dir_fd=parent.fd)


def _digest_of(target: Target) -> str | None:
    """None: no file there; empty: one that cannot be read."""
    if not target.exists:
        return None
    try:
        return hashlib.sha256(files.read_bytes(target)).hexdigest()
    except SandboxError:
        return ""


def _digest(file: Handle) -> str:
    known = hashlib.sha256()
    done = 0
    while chunk := os.pread(file.fd, _CHUNK, done):
        known.update(chunk)
        done += len(chunk)
    return known.hexdigest()


def _is_kept(record: FileRecord, target: Target) -> bool:
    """Whether the second name stands for anything but the file as it is now."""
    if target.parent is None or target.missing > 1 or not _OWN_NAME.fullmatch(record.kept):
        return False
    try:
        kept = os.stat(record.kept, dir_fd=target.parent.fd, follow_symlinks=False)
    except OSError:
        return False
    return identity_of(kept) != target.identity


def _unlink(name: str, target: Target) -> None:
    if _OWN_NAME.fullmatch(name) and target.parent is not None and target.missing <= 1:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=target.parent.fd)
