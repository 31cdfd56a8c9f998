"""Importing: a tool from elsewhere becomes a draft in `tools/<name>` that nobody trusts.

Takes a source as a person writes it; gives Imported. Everything is read and checked before anything is put in place,
and any failure leaves nothing: no folder, no record. No file of an import is executed, whatever it is called; who uses
it is asked when it is first promoted. `check` is the caller's word on the finished offer (duplicates, a person's no);
raising refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from golem_forge.config.home import ForgeHome
from golem_forge.custom.manifest import MANIFEST, Manifest
from golem_forge.custom.registry.folder import FolderFiles
from golem_forge.custom.sharing import collection, lock, staging
from golem_forge.custom.sharing.bundle import MAX_BYTES
from golem_forge.custom.sharing.offer import Offer, offer_of
from golem_forge.custom.sharing.origins import Origin, opened
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.sources import HTTPS, GitSource, LocalSource, Source, parse_source
from golem_forge.events.clock import iso_now

Check = Callable[[str, Manifest, FolderFiles], None]


def accept(name: str, manifest: Manifest, files: FolderFiles) -> None:
    """The Check that refuses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    name: str
    digest: str
    source: str
    commit: str
    """Empty without git."""
    version: str
    warnings: tuple[str, ...] = ()


def import_tool(
    source: str,
    *,
    home: ForgeHome,
    rename: str = "",
    entrypoint: str = "",
    pick: str = "",
    check: Check = accept,
    environ: Mapping[str, str] = os.environ,
    transports: frozenset[str] = HTTPS,
    now: Callable[[], str] = iso_now,
) -> Imported:
    """`pick`: the name of one tool of a collection. `rename`: the name it gets here."""
    place = parse_source(source, transports=transports)
    with opened(place, home=home, environ=environ, transports=transports) as origin:
        place, offer = (
            _picked(origin, place, pick, rename) if pick else (place, _only(origin, place, rename, entrypoint))
        )
    lock.read_lock(home)  # one that cannot be read is found out before anything is put in place
    staging.check_free(home, offer.name)
    with staging.staged(home, offer.name, offer.files) as folder:
        check(offer.name, offer.manifest, offer.files)
        staging.place(home, offer.name, folder)
        imported = described(offer, place)
        try:
            lock.record(home, locked(imported, now()))
        except BaseException:
            os.rename(home.path / staging.TOOLS / offer.name, folder)
            raise
    return imported


def described(offer: Offer, place: Source) -> Imported:
    return Imported(
        name=offer.name,
        digest=offer.files.digest,
        source=place.text,
        commit=place.commit if isinstance(place, GitSource) else "",
        version=offer.manifest.version,
        warnings=offer.warnings,
    )


def locked(imported: Imported, time: str) -> lock.Locked:
    return lock.Locked(
        name=imported.name,
        source=imported.source,
        commit=imported.commit,
        digest=imported.digest,
        version=imported.version,
        time=time,
    )


def _only(origin: Origin, place: Source, rename: str, entrypoint: str) -> Offer:
    if origin.one(_inside(place, MANIFEST), MAX_BYTES) is None:
        _refuse_collection(origin, place)
    return offer_of(origin.files(place.below), rename=rename, entrypoint=entrypoint)


def _refuse_collection(origin: Origin, place: Source) -> None:
    """A collection may be far larger than a tool; say what it is instead of how large."""
    if origin.one(_inside(place, collection.INDEX), MAX_BYTES) is not None:
        names = [row.name for row in collection.read_index(origin, place.below).rows]
        some = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise SharingError(f"It is a collection; name the tool to import after it: {some}")


def _picked(origin: Origin, place: Source, pick: str, rename: str) -> tuple[Source, Offer]:
    if isinstance(place, LocalSource) and not place.path.is_dir():
        raise SharingError("A collection is a git repository or a folder; unpack the archive first.")
    row = collection.find(collection.read_index(origin, place.below), pick)
    place = replace(place, below=_inside(place, row.path))
    files = origin.files(place.below)
    if row.digest and files.digest != row.digest:
        raise SharingError(
            f"The files of {quoted(pick)} are not those that the collection lists (digest); not imported."
        )
    found = offer_of(files)
    if found.name != pick:
        raise SharingError(f"The collection calls it {quoted(pick)}, its tool.yaml {quoted(found.name)}; not imported.")
    return place, offer_of(files, rename=rename) if rename else found


def _inside(place: Source, name: str) -> str:
    return f"{place.below}/{name}" if place.below else name
