"""Updating: a newer version of an imported tool, shown before it is put in place.

`prepare` fetches and checks it and gives old and new files for a diff; `carry_out` swaps the folders in one step. It is
a change like any other: the new digest is a draft that asks again, and `seen` is given the old files first, so that
history keeps them. Refuses if the folder is no longer the one that was shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from golem_forge.config.home import ForgeHome
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.manifest import MANIFEST
from golem_forge.custom.manifest.reading import read_manifest
from golem_forge.custom.registry.folder import FolderFiles, read_folder
from golem_forge.custom.sharing import git, lock, staging
from golem_forge.custom.sharing.importing import Check, Imported, accept, described, locked
from golem_forge.custom.sharing.offer import offer_of
from golem_forge.custom.sharing.origins import opened
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.sources import HTTPS, GitSource, LocalSource, Source, parse_source, pinned
from golem_forge.events.clock import iso_now

Seen = Callable[[str, FolderFiles], None]
"""(name, files) of the version that is about to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    imported: Imported
    """As it will be."""
    old: FolderFiles
    new: FolderFiles


def prepare(
    name: str,
    *,
    home: ForgeHome,
    commit: str = "",
    check: Check = accept,
    environ: Mapping[str, str] = os.environ,
    transports: frozenset[str] = HTTPS,
) -> Update:
    """`commit` empty: where the default branch of its repository stands, or what lies in its folder or archive now."""
    record = lock.read_lock(home).get(name)
    if record is None:
        raise SharingError(f"tool {quoted(name)} was not imported; there is nothing to update it from.")
    old = read_folder(home.path / staging.TOOLS / record.name)
    place = _place(record, home, commit, environ, transports)
    with opened(place, home=home, environ=environ, transports=transports) as origin:
        files = origin.files(place.below)
    offer = offer_of(files, rename=name, entrypoint=_entrypoint(files, old, name))
    check(name, offer.manifest, offer.files)
    return Update(imported=described(offer, place), old=old, new=offer.files)


def carry_out(update: Update, *, home: ForgeHome, seen: Seen, now: Callable[[], str] = iso_now) -> Imported:
    name = update.imported.name
    seen(name, update.old)
    with staging.staged(home, name, update.new) as folder:
        staging.exchange(home, name, folder)
        try:
            if _digest(folder) != update.old.digest:  # `folder` is now what was there before
                raise SharingError(f"tool '{name}' was changed meanwhile and left as it is; update it again.")
            lock.record(home, locked(update.imported, now()))
        except BaseException:
            staging.exchange(home, name, folder)
            raise
    return update.imported


def _place(
    record: lock.Locked, home: ForgeHome, commit: str, environ: Mapping[str, str], transports: frozenset[str]
) -> Source:
    if not record.commit:
        if commit:
            raise SharingError(f"tool '{record.name}' was not imported from git; it has no commits.")
        return LocalSource(path=Path(record.source))
    place = parse_source(record.source, transports=transports)
    if not isinstance(place, GitSource):
        raise SharingError(f"The record of '{record.name}' in tools.lock is not usable; import it again.")
    wanted = pinned(commit.removeprefix("@")) if commit else ""
    return replace(place, commit=wanted or git.newest(place.url, home=home, environ=environ, transports=transports))


def _entrypoint(new: FolderFiles, old: FolderFiles, name: str) -> str:
    """Of a skill without a manifest: the one that was chosen when it was imported."""
    if MANIFEST in new.files or f"scripts/{MANIFEST}" in new.files or MANIFEST not in old.files:
        return ""
    try:
        return read_manifest(old.files[MANIFEST], folder=name).entrypoint
    except Unusable:
        return ""


def _digest(folder: Path) -> str:
    try:
        return read_folder(folder).digest
    except Unusable as error:
        return Code(error.diagnosis).value
