"""The trust card: everything a person needs to decide whether a tool's code may run as theirs.

`trust_card` takes a tool folder as it is, and the version that was trusted last if there is one. Gives a text that no
file can steer or imitate: who made it, what it may do, whether it is tested, and every line of it (or what changed).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from golem_forge.core.visible import visible
from golem_forge.custom.diagnostic import Unusable
from golem_forge.custom.entry import Entry
from golem_forge.custom.manifest import MANIFEST, Manifest
from golem_forge.custom.trust.card_files import CardFiles
from golem_forge.custom.trust.permissions import compared, permissions

if TYPE_CHECKING:
    from golem_forge.custom.registry.folder import FolderFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustCard:
    text: str
    """What it is and what it may do; of a tool that was never trusted also every file."""
    diff: str
    """Against the version that was trusted last; empty without one."""
    warnings: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """All of it, for where it is printed as it is."""
        warnings = [f"warning: {one}" for one in self.warnings]
        return "\n".join((*warnings, self.text, *((self.diff,) if self.diff else ())))


def trust_card(
    entry: Entry,
    files: FolderFiles,
    *,
    provenance: str,
    folder_shown: str,
    old: FolderFiles | None = None,
    build_hosts: Sequence[str] = (),
    similar: Sequence[str] = (),
    shadows: bool = False,
    denied: int = 0,
) -> TrustCard:
    """`old`: the version that was trusted last; `shadows`: a built-in tool has this name; `denied`: how often this very
    version was."""
    manifest = entry.manifest
    if old is not None and old.digest == files.digest:
        old = None
    shown = CardFiles(files, manifest.entrypoint, old)
    before = _manifest_of(entry.name, old)
    granted, changed = compared(
        permissions(before, build_hosts=build_hosts) if before else None, permissions(manifest, build_hosts=build_hosts)
    )
    head = [
        f"custom tool '{entry.name}'",
        f"version: {_version(before, manifest)}",
        f"description: {manifest.description}",
        f"provenance: {provenance}",
        f"folder: {folder_shown}",
        f"digest: {entry.digest}",
        f"runs: {_program(manifest.entrypoint, files)}",
        *granted,
        f"tests: {_tests(len(manifest.tests))}",
        *_remarks(entry.name, similar, shadows, denied),
    ]
    diff = shown.changes() if old is not None else ""
    body = _unchanged(shown) if old is not None else ["files:", shown.full()]
    warnings = list(shown.warnings)
    if shadows:
        warnings.insert(0, f"replaces the built-in tool '{entry.name}'")
    if changed:
        warnings.insert(0, f"what it may do changed since it was trusted: {', '.join(changed)}")
    text = "\n".join((*(_one_line(line) for line in head), *body))
    return TrustCard(text=text, diff=diff, warnings=tuple(warnings))


def _remarks(name: str, similar: Sequence[str], shadows: bool, denied: int) -> Iterator[str]:
    if similar:
        yield f"similar tools: {', '.join(similar)}"
    if shadows:
        yield f"replaces the built-in tool '{name}'"
    if denied:
        yield f"denied {'once' if denied == 1 else f'{denied} times'} before"


def _unchanged(shown: CardFiles) -> list[str]:
    names = shown.unchanged()
    same = [_one_line(f"unchanged files: {', '.join(names)}")] if names else []
    return ["changes since it was trusted: below", *same]


def _program(entrypoint: str, files: FolderFiles) -> str:
    built = entrypoint not in files.files and f"{entrypoint}.go" in files.files
    return f"{entrypoint}, built from {entrypoint}.go" if built else entrypoint


def _tests(count: int) -> str:
    if not count:
        return "no tests"
    return "1 test" if count == 1 else f"{count} tests"


def _version(before: Manifest | None, now: Manifest) -> str:
    changed = before is not None and before.version != now.version
    return f"{before.version} -> {now.version}" if changed and before is not None else now.version


def _manifest_of(name: str, old: FolderFiles | None) -> Manifest | None:
    """What the old version may do; None if that can no longer be read."""
    if old is None or (data := old.files.get(MANIFEST)) is None:
        return None
    from golem_forge.custom.manifest.reading import read_manifest

    try:
        return read_manifest(data, folder=name)
    except Unusable:
        return None


def _one_line(text: str) -> str:
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")
