"""`forge tools export | import | browse | index | update | verify`: tools for others, and tools of others. Nothing of
them runs.

`export` writes a folder, a reproducible archive or an Agent Skill: files only, no trust, history or statistics.
`import` makes a draft that nobody trusts; it refuses what is no tool, a reserved or taken name, and a twin of a tool
that is here. `browse` lists a collection, `index` writes the list of one. `update` fetches a newer version, shows the
difference and asks; the old files stay a version. `verify` compares every imported tool with `tools.lock` and changes
nothing.

Threat: everything that is printed was written by a stranger; it is shown so that it cannot steer the terminal, before
anything is replaced.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from golem_forge.cli.command import DENIED, FAILED, NOT_FOUND, declare, fail, parser, print_error, print_json, read_args
from golem_forge.cli.tools.lifecycle import print_difference
from golem_forge.cli.tools.workshop import find_entry, load_workshop, print_refusal, print_usage_error, status_line
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import columns, display_path, one_line, shorten_prose
from golem_forge.events.serialization import iso_now
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import forge_home
from golem_forge.ui.line_terminal import ask_yes, can_ask
from golem_forge.usertools import share
from golem_forge.usertools.diagnostics import is_reserved, name_problem
from golem_forge.usertools.folder import FolderFiles
from golem_forge.usertools.manifest import ToolManifest
from golem_forge.usertools.share import LockRecord, check_commit, parse_source, read_lock, verify_tools
from golem_forge.usertools.share.export import export_skill, export_tool, write_index
from golem_forge.usertools.share.importer import ImportedTool, ToolUpdate, apply_update, import_tool, prepare_update
from golem_forge.usertools.share.reader import INDEX_FILE, browse_collection
from golem_forge.usertools.store.queries import Author, AuthorKind
from golem_forge.usertools.trust import identical_tool, similar_tools
from golem_forge.usertools.workshop import Workshop

EXPORT_HELP: Final = """usage: forge tools export NAME -o DIR | -o FILE.tar.gz
       forge tools export NAME --skill -o DIR

Writes a user tool for other people: its folder as DIR/NAME, or an archive. Equal files give an archive with equal
bytes. It writes the current files only; trust, history and statistics stay here.

  --skill    as an Agent Skill: DIR/<skill>/SKILL.md, and the tool's files in its scripts/;
             `forge tools import` of it gives the tool back with an equal digest

Exit: 0 done, 1 it could not be written, 2 usage, 4 no such tool."""

_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")


def run_export(words: list[str]) -> int:
    reader = declare(parser("tools export", EXPORT_HELP), "name", "--skill")
    reader.add_argument("-o", "--output", required=True)
    asked = reader.parse_args(words)
    if not asked.output:
        return print_usage_error("export", "-o needs a folder or a FILE.tar.gz")
    out = Path(os.path.expanduser(asked.output))
    if asked.skill and out.name.lower().endswith(_ARCHIVES) and not out.is_dir():
        return print_usage_error("export", "a skill is a folder; give -o DIR")

    workshop = load_workshop()
    entry = find_entry(workshop, "export", asked.name)
    if entry is None:
        return NOT_FOUND
    try:
        files = workshop.registry.files(entry)
        of_tool = "SELECT digest FROM versions WHERE name = :name"
        known = {str(digest) for (digest,) in workshop.store.rows(of_tool, {"name": entry.name})}
        if asked.skill:
            written = export_skill(entry.manifest, files, out, known.__contains__)
        else:
            written = export_tool(files, entry.name, out, known.__contains__)
    except (ForgeError, OSError) as error:
        return print_refusal("export", error)
    print(f"Exported tool '{entry.name}' {one_line(entry.manifest.version)} to {display_path(written)}")
    print(f"digest: {entry.digest}")
    return 0


IMPORT_HELP: Final = """usage: forge tools import SRC [NAME] [--as NAME] [--entrypoint FILE]

Imports a tool from SRC. Forge runs none of its files. The tool starts as a draft that nobody trusts;
`forge tools activate` shows what it is and asks.

SRC is one of
  ./folder, FILE.tar.gz, FILE.zip
  git+https://host/repo@COMMIT#sub/dir
  git@host:owner/repo@COMMIT#sub/dir      by your own ssh, its config and agent; also git+ssh://git@host/repo@COMMIT
  github:owner/repo@COMMIT/sub/dir        COMMIT is a full commit id, 40 hex digits: a branch or tag may change
  a folder with a SKILL.md                an Agent Skill; its script becomes the tool

  NAME                which tool, if SRC is a collection (forge-tools.json); `forge tools browse SRC` lists it
  --as NAME           import it under another name
  --entrypoint FILE   which script a skill runs, if it has several

tools.lock records where it came from; `forge tools verify` says whether it is still what you imported.
Exit: 0 done, 1 it was refused, 2 usage, 4 no such tool in the collection."""


def run_import(words: list[str]) -> int:
    asked = read_args("tools import", IMPORT_HELP, words, "source:SRC", "NAME?", "--as NAME", "--entrypoint FILE")
    rename: str | None = getattr(asked, "as")
    if problem := _usage_problem(asked.source, asked.name, rename, asked.entrypoint):
        return print_usage_error("import", problem)

    workshop = load_workshop()

    def refuse_twin(name: str, manifest: ToolManifest, files: FolderFiles) -> None:
        if same := identical_tool(workshop, name, files.files):
            raise ForgeError(f"identical to custom tool '{same}'; nothing was imported", code="IDENTICAL")

    try:
        imported = import_tool(
            asked.source,
            home=workshop.home,
            rename=rename or "",
            entrypoint=asked.entrypoint or "",
            pick=asked.name or "",
            check=refuse_twin,
        )
    except (ForgeError, OSError) as error:
        return print_refusal("import", error)
    author = Author(AuthorKind.IMPORT, source=imported.source)
    workshop.store.record_creation(imported.name, author)
    workshop.store.record_version(imported.name, imported.digest, author)
    workshop.registry.refresh()
    _print_imported(workshop, imported)
    return 0


def _usage_problem(source: str, name: str | None, rename: str | None, entrypoint: str | None) -> str:
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


def _print_imported(workshop: Workshop, imported: ImportedTool) -> None:
    name = imported.name
    entry = workshop.registry.entries.get(name)
    description = entry.manifest.description if entry else ""
    print(f"Imported tool '{name}' {one_line(imported.version)} from {display_path(imported.source)}")
    if description:
        print(f"description: {one_line(description)}")
    print(f"digest: {imported.digest}")
    if similar := similar_tools(workshop, name, description):
        print(f"Similar tools: {', '.join(similar)}")
    for warning in imported.warnings:
        print_error("tools import", f"warning: {warning}")
    if workshop.shadows(name):
        until = "Forge asks you first, and until then the built-in tool answers."
        print_error("tools import", f"note: when you activate it, it replaces the built-in tool '{name}'. {until}")
    print("None of its code ran. " + status_line(workshop, name))


BROWSE_HELP: Final = """usage: forge tools browse SRC [QUERY…] [--json]

Lists the tools of a collection: a folder or repository with a forge-tools.json. SRC is written as for
`forge tools import`: ./folder, git+https://host/repo@COMMIT#sub/dir or github:owner/repo@COMMIT/sub/dir.

  QUERY     only tools whose name or description has every one of these words

`forge tools import SRC NAME` takes one. The author wrote this list; Forge has not checked it.
Exit: 0 done, 1 it cannot be read or is not a collection, 2 usage."""

_DESCRIPTION_WIDTH: Final = 100


def run_browse(words: list[str]) -> int:
    asked = read_args("tools browse", BROWSE_HELP, words, "source:SRC", "QUERY*", "--json")

    try:
        parse_source(asked.source)
    except ForgeError as error:
        return print_usage_error("browse", error.message)
    try:
        listing = browse_collection(asked.source, " ".join(asked.query), home=forge_home())
    except (ForgeError, OSError) as error:
        return print_refusal("browse", error)
    if asked.json:
        print_json({"tools": [row.to_json() for row in listing.rows], "problems": list(listing.problems)})
        return 0
    for problem in listing.problems:
        print_error("tools browse", f"left out: {problem}")
    if not listing.rows:
        print_error("tools browse", "no tool in it fits." if asked.query else "it lists no tools.")
        return 0
    rows = ((row.name, row.version, shorten_prose(row.description, _DESCRIPTION_WIDTH)) for row in listing.rows)
    print(columns([("NAME", "VERSION", "DESCRIPTION"), *rows]))
    print(f"\nforge tools import {one_line(asked.source)} NAME takes one; it starts as a draft that nobody trusts.")
    return 0


INDEX_HELP: Final = """usage: forge tools index [DIR] [--json]

Writes DIR/forge-tools.json (DIR: this directory): name, description, version, path and digest of every tool below it.
That makes the folder, or the repository it is in, a collection for `forge tools browse` and `forge tools import`.
Write it again after every change: `import` refuses a tool whose files do not fit the digest. No code of the tools runs.

Exit: 0 done, 1 a folder with a tool.yaml is not a usable tool and was left out, or there is no tool, 2 usage."""


def run_index(words: list[str]) -> int:
    asked = read_args("tools index", INDEX_HELP, words, "dir:DIR?", "--json", dir=".")
    folder = Path(os.path.realpath(os.path.expanduser(asked.dir)))
    if not asked.dir or not folder.is_dir():
        return print_usage_error("index", f"{one_line(asked.dir)} is not a folder")
    try:
        listing = write_index(folder)
    except (ForgeError, OSError) as error:
        return print_refusal("index", error)
    for problem in listing.problems:
        print_error("tools index", f"left out: {problem}")
    if asked.json:
        print_json({"tools": [row.to_json() for row in listing.rows], "problems": list(listing.problems)})
    else:
        rows = ((row.name, row.version, row.path) for row in listing.rows)
        print(columns([("NAME", "VERSION", "PATH"), *rows]))
        print(f"\nWrote {display_path(folder / INDEX_FILE)}; `forge tools browse {one_line(asked.dir)}` reads it.")
    return FAILED if listing.problems else 0


UPDATE_HELP: Final = """usage: forge tools update NAME [@COMMIT] [--yes]

Fetches an imported tool again from its source. For a git repository it takes the newest commit of the default branch,
or @COMMIT (a full commit id). For a folder or archive it takes the current files. Shows what would change, then asks.

  --yes     replace it without a question

None of its code runs. The tool is then a draft, and Forge asks again before it is used; `forge tools undo NAME` goes
back.
Exit: 0 done or nothing new, 1 it failed, 2 usage, 3 not agreed, 4 no such tool."""


def run_update(words: list[str]) -> int:
    asked = read_args("tools update", UPDATE_HELP, words, "name", "commit:@COMMIT?", "--yes")

    commit = ""
    if asked.commit is not None:
        try:
            commit = check_commit(asked.commit.removeprefix("@"))
        except ForgeError as error:
            return print_usage_error("update", error.message)
    workshop = load_workshop()
    try:
        record = read_lock(workshop.home).get(asked.name)
        if record is None or workshop.registry.lookup(asked.name) is None:
            return _print_not_updatable(workshop, asked.name, record)
        update = prepare_update(asked.name, home=workshop.home, commit=commit)
        if update.new.digest == update.old.digest:
            return _print_up_to_date(workshop, update, record)
        return _update(workshop, update, record, yes=asked.yes)
    except (ForgeError, OSError) as error:
        return print_refusal("update", error)


def _print_not_updatable(workshop: Workshop, name: str, record: LockRecord | None) -> int:
    if record is not None:
        print_error("tools update", f"the folder of '{name}' is gone; `forge tools undo {name}` brings it back.")
    elif workshop.registry.lookup(name) is not None:
        return fail("tools update", f"tool '{name}' was not imported; there is nothing to update it from.", FAILED)
    else:
        find_entry(workshop, "update", name)  # says so, with the nearest name
    return NOT_FOUND


def _print_up_to_date(workshop: Workshop, update: ToolUpdate, record: LockRecord) -> int:
    """Handles the same files at another commit: only the record changes."""
    facts = attrgetter("source", "commit", "digest", "version")
    if facts(update.imported) != facts(record):
        share.add_record(workshop.home, replace(update.imported, time=iso_now()))
    print(f"tool '{record.name}' is up to date{_commit_note(update)}; no file changed.")
    return 0


def _update(workshop: Workshop, update: ToolUpdate, record: LockRecord, *, yes: bool) -> int:
    name = record.name
    print(f"tool '{name}' from {display_path(update.imported.source)}")
    print_difference("update", name, update.old, update.new)
    if update.old.digest != record.digest:
        edited = f"'{name}' was edited after the import; the update replaces the edits and keeps them as a version."
        print_error("tools update", edited)
    if not yes and not _ask_replace(update):
        return DENIED

    def store_old_version(name: str, old: FolderFiles) -> None:
        """Stores the replaced files as a version first, even if edits made them an invalid tool."""
        ContentStore(workshop.home).put(old.files, executable=old.executable)
        workshop.store.record_version(name, old.digest)

    apply_update(update, home=workshop.home, seen=store_old_version)
    imported = update.imported
    workshop.store.record_version(imported.name, imported.digest, Author(AuthorKind.IMPORT, source=imported.source))
    workshop.registry.refresh()
    version = f"{one_line(imported.version)}{_commit_note(update)}"
    print(f"Updated tool '{name}' to {version}; nothing of it was executed.")
    print(status_line(workshop, name))
    return 0


def _ask_replace(update: ToolUpdate) -> bool:
    name, commit = update.imported.name, update.imported.commit
    if not can_ask():
        exactly = f"{name} @{commit}" if commit else name  # the default branch may have moved on by then
        then = f"Read the difference above, then run `forge tools update {exactly} --yes`."
        print_error("tools update", f"Forge cannot ask you here; nothing was changed. {then}")
        return False
    if ask_yes(f"Replace the files of '{name}' by these? [y/N] "):
        return True
    print("Nothing was changed.")
    return False


def _commit_note(update: ToolUpdate) -> str:
    return f" (commit {update.imported.commit})" if update.imported.commit else ""


VERIFY_HELP: Final = """usage: forge tools verify [--json]

Says which imported tools are no longer what was imported: edited, missing or unreadable.
`forge tools diff NAME DIGEST` shows what changed, `forge tools update NAME` takes the source's files again.
Exit: 0 all are unchanged, 1 drift, or tools.lock cannot be read, 2 usage."""


def run_verify(words: list[str]) -> int:
    asked = read_args("tools verify", VERIFY_HELP, words, "--json")

    home = forge_home()
    try:
        names = list(read_lock(home))
        drifted = verify_tools(home)
    except (ForgeError, OSError) as error:
        return print_refusal("verify", error)
    if asked.json:
        print_json({"ok": not drifted, "checked": names, "drift": [asdict(each) for each in drifted]})
    elif drifted:
        for each in drifted:
            print(one_line(each.text))
        again = "`forge tools update NAME` takes the source's files again."
        print_error("tools verify", f"`forge tools diff NAME DIGEST` shows what changed, {again}")
    elif names:
        count = "1 imported tool is" if len(names) == 1 else f"{len(names)} imported tools are"
        print(f"{count} as tools.lock says.")
    else:
        print("No tool was imported.")
    return FAILED if drifted else 0
