"""Collections: a repository or folder with `forge-tools.json`, a list of the tools in it.

    {"tools": [{"name", "description", "version", "path", "digest"}, …]}

`browse` gives its rows; `find` the one of a name. Nothing in the list is trusted: an entry that is not what it must be
is left out and reported, texts are made visible, a digest is only ever a reason to refuse.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ForgeError
from golem_forge.core.nearest import nearest
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible
from golem_forge.custom.names import name_problem
from golem_forge.custom.sharing.bundle import plain_name
from golem_forge.custom.sharing.origins import Origin, opened
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.sources import HTTPS, parse_source

INDEX: Final = "forge-tools.json"
_MAX_INDEX_BYTES: Final = 4 << 20
_MAX_ROWS: Final = 10_000
_MAX_PROBLEMS: Final = 20
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST: Final = {"name": 64, "description": 1024, "version": 64, "path": 1024, "digest": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    description: str
    version: str
    path: str
    digest: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    rows: tuple[Row, ...]
    """By name."""
    problems: tuple[str, ...] = ()
    """Of entries that were left out."""


def browse(
    source: str,
    query: str = "",
    *,
    home: ForgeHome,
    environ: Mapping[str, str] = os.environ,
    transports: frozenset[str] = HTTPS,
) -> Listing:
    """The tools whose name or description has every word of `query`."""
    place = parse_source(source, transports=transports)
    with opened(place, home=home, environ=environ, transports=transports) as origin:
        listing = read_index(origin, place.below)
    words = query.casefold().split()
    rows = (row for row in listing.rows if all(word in f"{row.name} {row.description}".casefold() for word in words))
    return Listing(rows=tuple(rows), problems=listing.problems)


def find(listing: Listing, name: str) -> Row:
    for row in listing.rows:
        if row.name == name:
            return row
    near = nearest(name, [row.name for row in listing.rows])
    hint = f" (did you mean '{near}'?)" if near else ""
    raise SharingError(f"The collection has no tool {quoted(name)}{hint}.", status=Status.TOOL_NOT_FOUND)


def read_index(origin: Origin, below: str = "") -> Listing:
    import json

    data = origin.one(f"{below}/{INDEX}" if below else INDEX, _MAX_INDEX_BYTES)
    if data is None:
        raise SharingError(f"There is no {INDEX} in it, so it is no collection.")
    try:
        listed = json.loads(data)["tools"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SharingError(f'{INDEX} is not JSON of the form {{"tools": [...]}}.') from None
    if not isinstance(listed, list) or len(listed) > _MAX_ROWS:
        raise SharingError(f"{INDEX}: tools: must be a list of at most {_MAX_ROWS}.")
    rows: dict[str, Row] = {}
    problems: list[str] = []
    for at, value in enumerate(listed):
        try:
            row = _row(value)
            if row.name in rows:
                raise SharingError(f"name: {quoted(row.name)} is listed twice")
            rows[row.name] = row
        except ForgeError as error:
            problems.append(f"{INDEX}: tools[{at}]: {error.message}")
    return Listing(rows=tuple(rows[name] for name in sorted(rows)), problems=tuple(problems[:_MAX_PROBLEMS]))


def _row(value: Any) -> Row:
    if not isinstance(value, dict):
        raise SharingError("must be an object")
    texts: dict[str, str] = {}
    for key, longest in _LONGEST.items():
        text = value.get(key, "" if key == "digest" else None)
        if not isinstance(text, str) or len(text) > longest or (not text and key != "digest"):
            raise SharingError(f"{key}: must be text of at most {longest} characters")
        texts[key] = text
    if problem := name_problem(texts["name"]):
        raise SharingError(problem)
    if texts["digest"] and not _DIGEST.fullmatch(texts["digest"]):
        raise SharingError("digest: must be sha256: and 64 hexadecimal digits")
    return Row(
        name=texts["name"],
        description=visible(" ".join(texts["description"].split())),
        version=visible(" ".join(texts["version"].split())),
        path=plain_name(texts["path"].rstrip("/")),
        digest=texts["digest"],
    )
