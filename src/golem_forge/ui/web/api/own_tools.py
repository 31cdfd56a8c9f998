"""The person's own tools, read from their folders and the book. Everything here runs off the loop and changes nothing.

Files are shown as they are stored: they are the person's own. Bounded: of a long file, and beyond so much in all, only
the facts are given. Threat: a folder that changes while it is looked at; text, diff and digest are of one version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError

if TYPE_CHECKING:
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.registry.folder import FolderFiles
    from golem_forge.custom.workshop import Workshop
    from golem_forge.ui.web.api.subject import Subject

_LONGEST_FILE: Final = 256 * 1024
_MOST_TEXT: Final = 1 << 20
_LANGUAGES: Final = {
    "py": "python",
    "sh": "bash",
    "bash": "bash",
    "go": "go",
    "yaml": "yaml",
    "yml": "yaml",
    "json": "json",
    "toml": "toml",
    "md": "markdown",
    "js": "javascript",
    "mod": "go",
}
UNUSABLE: Final = "unusable"


@contextmanager
def shop_of(subject: Subject) -> Iterator[Workshop]:
    """The session's own where it has one: it knows what was trusted for the session alone."""
    placed = subject.runtime.user_tools if subject.runtime is not None else None
    if placed is not None:
        yield placed.shop
        return
    from golem_forge.workers.own_shop import shop_to_look_at

    shop = shop_to_look_at(subject.home)
    try:
        yield shop
    finally:
        shop.book.close()


def rows(shop: Workshop) -> list[dict[str, Any]]:
    """Every folder, by name: what state it is in, and why it is not offered if it is not."""
    from golem_forge.custom.book import AuthorKind
    from golem_forge.custom.trust.standing import standings_of

    shop.registry.refresh()
    entries = shop.registry.entries
    found = [_unusable(fault.tool, str(fault.code), fault.message) for fault in shop.registry.diagnostics]
    for name, standing in standings_of(shop, entries.values()).items():
        manifest, author = entries[name].manifest, shop.book.provenance(name)
        found.append(
            {
                "name": name,
                "state": standing.state.value,
                "code": str(standing.why.code) if standing.why is not None else "",
                "reason": standing.why.message if standing.why is not None else "",
                "description": manifest.description,
                "version": manifest.version,
                "digest": entries[name].digest,
                "author": author.describe(),
                "agent_made": author.kind is AuthorKind.AGENT,
                "imported": author.kind is AuthorKind.IMPORT,
                "category": manifest.category or "",
            }
        )
    return sorted(found, key=lambda each: each["name"])


def _unusable(name: str, code: str, reason: str) -> dict[str, Any]:
    return {"name": name, "state": UNUSABLE, "code": code, "reason": reason}


def detail(shop: Workshop, entry: Entry) -> dict[str, Any]:
    from golem_forge.custom.about import about

    known = about(shop, entry)
    why, ratings = known.pop("skipped"), known.pop("ratings")
    del known["provenance"]
    return known | {
        "code": why["code"] if why else "",
        "reason": why["message"] if why else "",
        "good": ratings["good"],
        "bad": ratings["bad"],
        "notes": ratings["notes"],
        "files": _files(shop.registry.files(entry)),
        "trust": _question(shop, entry),
    }


def past(shop: Workshop, name: str) -> list[dict[str, Any]]:
    """The versions it has had, newest first; also of one that is gone."""
    from golem_forge.custom.versions import versions

    return [row.to_json() | {"author": row.author.describe()} for row in versions(shop, name)]


def _files(found: FolderFiles) -> list[dict[str, Any]]:
    from golem_forge.custom.manifest import MANIFEST

    room, told = _MOST_TEXT, []
    for fact in sorted(found.facts, key=lambda each: (each.path != MANIFEST, each.path)):
        text = _text(found.files[fact.path]) if fact.size <= min(_LONGEST_FILE, room) else None
        room -= len(text or "")
        told.append(
            {
                "path": fact.path,
                "size": fact.size,
                "executable": fact.executable,
                "sha256": fact.sha256,
                "text": text,
                "language": _LANGUAGES.get(fact.path.rpartition(".")[2].lower(), ""),
            }
        )
    return told


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _question(shop: Workshop, entry: Entry) -> dict[str, Any] | None:
    """What a yes would be given to; None: nothing waits for one."""
    from golem_forge.custom.trust.promotion import Readied, card_for, must_be_promotable
    from golem_forge.custom.trust.standing import State, standing_of

    if standing_of(shop, entry).state in (State.ACTIVE, State.RETIRED):
        return None
    problem, hosts = "", tuple[str, ...]()
    try:
        must_be_promotable(shop, entry)
        needs = shop.builder.needs(entry, shop.registry.files(entry))
        hosts = () if needs.cached else needs.hosts
    except ForgeError as error:
        problem = error.message
    ready = Readied(entry=entry, snapshot=shop.registry.snapshot(entry), prepared=None, hosts=hosts)
    card = card_for(shop, ready)
    return {
        "digest": entry.digest,
        "text": card.text,
        "diff": card.diff,
        "warnings": card.warnings,
        "build_hosts": hosts,
        "problem": problem,
    }


def entry_named(shop: Workshop, name: str) -> Entry | None:
    """As the folder is now; None: there is none that is a tool."""
    from golem_forge.custom.entry import Entry

    found = shop.registry.look(name)
    return found if isinstance(found, Entry) else None


def fault_of(shop: Workshop, name: str) -> str:
    """Why a folder of that name is no tool; empty: there is none, or it is one."""
    from golem_forge.custom.diagnostic import Diagnostic
    from golem_forge.custom.versions import folder_of, is_known

    found = shop.registry.look(name)
    if isinstance(found, Diagnostic):
        return found.told
    if found is None and is_known(shop, name):
        with suppress(OSError):
            if folder_of(shop, name).is_dir():
                return "Its folder has no tool.yaml, so it is no tool."
        return "Its folder is gone; undo brings it back."
    return ""
