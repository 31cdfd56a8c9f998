"""`forge tools browse SRC [QUERY]`: the tools a collection lists. Nothing is taken over, nothing in it is trusted."""

from __future__ import annotations

import os
from typing import Final

from golem_forge.cli.plain import columns, complain, one_line, parser, print_json, shortened
from golem_forge.cli.tools.telling import refused, wrong_use
from golem_forge.core.errors import ForgeError

HELP: Final = """usage: forge tools browse SRC [QUERY…] [--json]

Lists the tools of a collection: a folder or repository with a forge-tools.json. SRC is written as for
`forge tools import`: ./folder, git+https://host/repo@COMMIT#sub/dir or github:owner/repo@COMMIT/sub/dir.

  QUERY     only tools whose name or description has every one of these words

`forge tools import SRC NAME` takes one. What the list says of a tool is its author's word.
Exit: 0 done, 1 it cannot be read or is no collection, 2 usage."""

_DESCRIPTION_WIDTH: Final = 100


def run_browse(words: list[str]) -> int:
    reader = parser("tools browse", HELP)
    reader.add_argument("source", metavar="SRC")
    reader.add_argument("query", nargs="*", metavar="QUERY")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)

    from golem_forge.config.home import forge_home
    from golem_forge.custom.sharing.collection import browse
    from golem_forge.custom.sharing.sources import parse_source

    try:
        parse_source(asked.source)
    except ForgeError as error:
        return wrong_use("browse", error.message)
    try:
        listing = browse(asked.source, " ".join(asked.query), home=forge_home(), environ=os.environ)
    except (ForgeError, OSError) as error:
        return refused("browse", error)
    if asked.json:
        print_json({"tools": [row.to_json() for row in listing.rows], "problems": list(listing.problems)})
        return 0
    for problem in listing.problems:
        complain("tools browse", f"left out: {problem}")
    if not listing.rows:
        complain("tools browse", "no tool in it fits." if asked.query else "it lists no tools.")
        return 0
    rows = ((row.name, row.version, shortened(row.description, _DESCRIPTION_WIDTH)) for row in listing.rows)
    print(columns([("NAME", "VERSION", "DESCRIPTION"), *rows]))
    print(f"\nforge tools import {one_line(asked.source)} NAME takes one; it starts as a draft that nobody trusts.")
    return 0
