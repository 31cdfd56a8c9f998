"""Duplicates: which tools a new one is like, and whether it is one of them under another name.

`similar` compares words and only warns; `twin_of` compares bytes and refuses. A tool's own name is no difference: the
manifest's `name:` line is left out, and a source called after its tool counts as `<name>.py` wherever it is named.
Two templates nobody has edited yet are not twins for that: they are two beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from golem_forge.custom.making.scaffold import is_template
from golem_forge.custom.manifest import MANIFEST

LEAST_LIKENESS: Final = 0.5
MOST_NAMED: Final = 3

_WORD: Final = re.compile(r"[^\W_]+")
_SHORTEST_WORD: Final = 3
_SAY_NOTHING: Final = frozenset(["the", "and", "for", "with", "from", "into", "that", "this", "tool"])
_NAME_LINE: Final = re.compile(rb"^name[ ]*:[^\n]*\n?", re.MULTILINE)
_ENTRYPOINT_LINE: Final = re.compile(rb"^entrypoint[ ]*:[ ]*([\"']?)([^\s\"'#]+)\1[ ]*$", re.MULTILINE)


def similar(name: str, description: str, others: Mapping[str, str]) -> tuple[str, ...]:
    """The names of tools that say nearly the same of themselves, best first. `others`: name → description."""
    own = _words(name, description)
    found: list[tuple[float, str]] = []
    for other, text in others.items():
        if other != name and (likeness := _jaccard(own, _words(other, text))) >= LEAST_LIKENESS:
            found.append((-likeness, other))
    return tuple(other for _, other in sorted(found)[:MOST_NAMED])


def twin_of(files: Mapping[str, bytes], name: str, others: Iterable[tuple[str, Mapping[str, bytes]]]) -> str:
    """The name of a tool with the same files; empty if there is none. `others`: name and files of each."""
    literal, own = _nameless(files), _called_after_itself(files, name)
    for other, other_files in others:
        if other == name or len(other_files) != len(files):
            continue
        if _nameless(other_files) == literal:
            return other
        if own is not None and _called_after_itself(other_files, other) == own:
            return other
    return ""


def _words(name: str, description: str) -> frozenset[str]:
    found = _WORD.findall(f"{name} {description}".lower())
    return frozenset(word for word in found if len(word) >= _SHORTEST_WORD and word not in _SAY_NOTHING)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0


def _nameless(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: _NAME_LINE.sub(b"", data, count=1) if path == MANIFEST else data for path, data in files.items()}


def _called_after_itself(files: Mapping[str, bytes], name: str) -> dict[str, bytes] | None:
    """With `<name>` for the tool's own name where it names its source; None if it does not, or is still a template."""
    found = _ENTRYPOINT_LINE.search(files.get(MANIFEST, b""))
    entrypoint = found[2].decode("utf-8", "replace") if found else ""
    stem, dot, ending = entrypoint.rpartition(".")
    if found is None or not dot or stem != name or entrypoint not in files or is_template(files[entrypoint]):
        return None
    renamed = f"<name>.{ending}"
    manifest = files[MANIFEST][: found.start()] + b"entrypoint: " + renamed.encode() + files[MANIFEST][found.end() :]
    changed = {path: data for path, data in files.items() if path != entrypoint}
    return _nameless({**changed, MANIFEST: manifest, renamed: files[entrypoint]})
