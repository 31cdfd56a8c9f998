"""One look at one folder below FORGE_HOME/tools: a tool, a diagnosis, or nothing that wants to be a tool.

Takes the folder's name and gives a Look, which knows every file and folder it came from, so that the same look need
not be taken again while their marks stay (no file is opened for that). What is a tool has its snapshot in the store:
the bytes that were hashed are the bytes that were stored.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from pathlib import Path

from golem_forge.core.errors import error_name
from golem_forge.custom.diagnostic import Code, Diagnostic, Unusable
from golem_forge.custom.entry import Entry
from golem_forge.custom.manifest import MANIFEST
from golem_forge.custom.names import name_problem
from golem_forge.custom.registry.entrypoint import entry_file
from golem_forge.custom.registry.folder import FolderFiles, Lasts, lasts_since, try_folder
from golem_forge.sandbox.store import ContentStore
from golem_forge.sandbox.tree import Mark, mark_of, shown_name

Outcome = Entry | Diagnostic | None
"""None: no tool and no error (a folder without `tool.yaml`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    outcome: Outcome
    paths: tuple[str, ...]
    marks: list[Mark]
    lasts: Lasts

    @property
    def holds(self) -> bool:
        return self.lasts is Lasts.WHILE_MARKED and unchanged(self.paths, self.marks)


def take_look(tools: str, name: str, store: ContentStore) -> Look | None:
    """None: no folder of that name. A link to a folder is diagnosed, any other thing that is no folder is nothing."""
    folder = f"{tools}/{name}"
    started = time.time_ns()
    try:
        status = os.lstat(folder)
        if stat.S_ISLNK(status.st_mode):
            linked = Diagnostic(tool=shown_name(name), code=Code.SYMLINK, message="the folder is a symbolic link")
            return _look(folder, {"": mark_of(status)}, linked, Lasts.WHILE_MARKED) if os.path.isdir(folder) else None
        if not stat.S_ISDIR(status.st_mode):
            return None
        os.lstat(f"{folder}/{MANIFEST}")
    except FileNotFoundError:
        if not os.path.lexists(folder):
            return None
        mark = mark_of(status)
        return _look(folder, {"": mark}, None, lasts_since((mark,), started))
    except OSError:
        pass  # what cannot be looked at cannot be read either, and that says why
    reading = try_folder(Path(folder))
    lasts = reading.lasts
    outcome: Outcome
    try:
        if isinstance(reading.found, Unusable):
            raise reading.found
        outcome = _entry(Path(folder), name, reading.found, store)
    except Unusable as problem:
        outcome = problem.of(shown_name(name))
    except Exception as error:  # one folder never hides another, whatever it makes a reader do; a full disk may empty
        why = (error.strerror if isinstance(error, OSError) else "") or error_name(error)
        what = f"its snapshot could not be kept or it could not be understood ({why})"
        outcome, lasts = Diagnostic(tool=shown_name(name), code=Code.UNREADABLE, message=what), Lasts.NOT
    return _look(folder, reading.marks, outcome, lasts)


def unchanged(paths: Sequence[str], marks: Sequence[Mark]) -> bool:
    """Whether each of them still bears its mark."""
    try:
        return all(map(eq, map(mark_of, map(os.lstat, paths)), marks))
    except OSError:
        return False


def _entry(folder: Path, name: str, found: FolderFiles, store: ContentStore) -> Entry | None:
    from golem_forge.custom.manifest.reading import read_manifest

    if MANIFEST not in found.files:
        if MANIFEST in found.folders:
            raise Unusable(Code.UNREADABLE, f"{MANIFEST}: is a directory")
        return None
    manifest = read_manifest(found.files[MANIFEST], folder=name)
    if problem := name_problem(name):
        raise Unusable(Code.NAME_INVALID, problem)
    entry_file(manifest.entrypoint, found)
    store.put(found.files, executable=found.executable)
    return Entry(name=name, folder=folder, manifest=manifest, digest=found.digest, files=found.facts)


def _look(folder: str, marks: Mapping[str, Mark], outcome: Outcome, lasts: Lasts) -> Look:
    paths = tuple(f"{folder}/{name}" if name else folder for name in marks)
    return Look(outcome=outcome, paths=paths, marks=list(marks.values()), lasts=lasts)
