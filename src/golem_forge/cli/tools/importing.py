"""`forge tools import SRC [NAME]`: a tool of somebody else becomes a draft that nobody trusts.

Nothing of it is executed; the person is asked when it is activated. Refused: what is no tool, a reserved name, a name
that is taken, and a twin of a tool that is here. Threat: everything that is printed was written by a stranger.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain, homely, one_line, parser
from golem_forge.cli.tools.telling import look_at_shop, refused, standing_line, wrong_use
from golem_forge.core.errors import ForgeError

if TYPE_CHECKING:
    from golem_forge.custom.manifest import Manifest
    from golem_forge.custom.registry.folder import FolderFiles
    from golem_forge.custom.sharing.importing import Imported
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools import SRC [NAME] [--as NAME] [--entrypoint FILE]

Takes over a tool from SRC. No file of it is executed, whatever it is called. It starts as a draft that nobody trusts;
`forge tools activate` shows what it is and asks.

SRC is one of
  ./folder, FILE.tar.gz, FILE.zip
  git+https://host/repo@COMMIT#sub/dir
  github:owner/repo@COMMIT/sub/dir        COMMIT is a full commit id, 40 hex digits: a branch or tag may change
  a folder with a SKILL.md                an Agent Skill; its script becomes the tool

  NAME                which tool, if SRC is a collection (forge-tools.json); `forge tools browse SRC` lists it
  --as NAME           import it under another name
  --entrypoint FILE   which script a skill runs, if it has several

Where it came from is kept in tools.lock; `forge tools verify` says whether it is still what was imported.
Exit: 0 done, 1 it was refused, 2 usage, 4 no such tool in the collection."""


def run_import(words: list[str]) -> int:
    reader = parser("tools import", HELP)
    reader.add_argument("source", metavar="SRC")
    reader.add_argument("name", nargs="?", metavar="NAME")
    reader.add_argument("--as", dest="rename", metavar="NAME")
    reader.add_argument("--entrypoint", metavar="FILE")
    asked = reader.parse_args(words)
    if problem := _usage_problem(asked.source, asked.name, asked.rename, asked.entrypoint):
        return wrong_use("import", problem)

    from golem_forge.custom.sharing.importing import import_tool

    shop = look_at_shop()
    try:
        imported = import_tool(
            asked.source,
            home=shop.home,
            rename=asked.rename or "",
            entrypoint=asked.entrypoint or "",
            pick=asked.name or "",
            check=partial(_refuse_twin, shop),
            environ=os.environ,
        )
    except (ForgeError, OSError) as error:
        return refused("import", error)
    _noted(shop, imported)
    _tell(shop, imported)
    return 0


def _usage_problem(source: str, name: str | None, rename: str | None, entrypoint: str | None) -> str:
    from golem_forge.custom.names import is_reserved, name_problem
    from golem_forge.custom.sharing.sources import parse_source

    try:
        parse_source(source)
    except ForgeError as error:
        return error.message
    if name == "" or entrypoint == "":
        return "NAME and FILE may not be empty"
    if name is not None and entrypoint is not None:
        return "--entrypoint is for a skill, NAME for a collection; give one of them"
    if rename is not None and (problem := name_problem(rename)):
        return f"--as: {problem}"
    if rename is not None and is_reserved(rename):
        return f"--as: tool name '{rename}' is reserved"
    return ""


def _refuse_twin(shop: Workshop, name: str, manifest: Manifest, files: FolderFiles) -> None:
    from golem_forge.custom.trust.promotion import twin

    if same := twin(shop, name, files.files):
        raise ForgeError(f"identical to custom tool '{same}'; nothing was imported", code="IDENTICAL")


def _noted(shop: Workshop, imported: Imported) -> None:
    from golem_forge.custom.book import Author, AuthorKind

    author = Author(AuthorKind.IMPORT, source=imported.source)
    shop.book.created(imported.name, author)
    shop.book.saw(imported.name, imported.digest, author)
    shop.registry.refresh()


def _tell(shop: Workshop, imported: Imported) -> None:
    from golem_forge.custom.trust.promotion import alike

    name = imported.name
    entry = shop.registry.entries.get(name)
    description = entry.manifest.description if entry else ""
    print(f"Imported tool '{name}' {one_line(imported.version)} from {homely(imported.source)}")
    if description:
        print(f"description: {one_line(description)}")
    print(f"digest: {imported.digest}")
    if similar := alike(shop, name, description):
        print(f"Similar tools: {', '.join(similar)}")
    for warning in imported.warnings:
        complain("tools import", f"warning: {warning}")
    if shop.shadows(name):
        complain(
            "tools import",
            f"note: activated, it replaces the built-in tool '{name}'; that is asked for, and until then the built-in "
            "one answers.",
        )
    print("Nothing of it was executed. " + standing_line(shop, name))
