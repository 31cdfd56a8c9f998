"""`forge tools new | build | activate | retire | restore | remove | diff | log | undo`: the life of a person's own
tool, and its versions.

`new` makes a scaffold, with the rules of `create_custom_tool` but without a card, since nothing of it runs. `build`
builds or checks; no line of the tool's code runs. `activate` builds, shows the card, asks and tests; a failing step
ends it. `retire` and `restore` switch a tool off and on; folder and trust stay. `remove` takes the folder away; it is a
version first, so `undo` brings it back. `diff`, `log` and `undo` work also for a tool whose folder is gone or no longer
a tool: `diff` and `log` change nothing, `undo` is itself a version, and what it replaces stays one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.cli.command import DENIED, NOT_FOUND, fail, print_error, print_json, read_args
from golem_forge.cli.tools.workshop import (
    ask_fetch,
    ask_trust,
    find_entry,
    load_workshop,
    open_workshop,
    print_refusal,
    print_unread_packages,
    print_usage_error,
    run_with_consent,
    status_line,
)
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import columns, escape_control_chars, local_time, nearest_remark, one_line, shorten
from golem_forge.tools.validation import InputInvalid
from golem_forge.ui.line_terminal import ask_yes, can_ask
from golem_forge.usertools.create import check_creation, create_tool_folder, creation_notes
from golem_forge.usertools.folder import FolderFiles, ToolEntry
from golem_forge.usertools.native_tools import CREATE_TOOL_NAME
from golem_forge.usertools.overview import (
    compare_versions,
    diff_versions,
    is_known_tool,
    list_versions,
    short_digest,
    tool_folder,
    undo_version,
)
from golem_forge.usertools.store.history import VersionLogEntry, remove_tool
from golem_forge.usertools.store.queries import MANUAL_AUTHOR
from golem_forge.usertools.trust import activate_tool, fetch_and_build, make_ready, restore_tool, retire_tool
from golem_forge.usertools.workshop import Workshop

NEW_HELP: Final = """\
usage: forge tools new NAME [--description TEXT] [--language LANGUAGE] [--usage TEXT] [--source FILE]
                       [--param NAME:TYPE=DEFAULT]… [--test[=JSON]]…

Makes ~/.forge/tools/NAME with a tool.yaml and a source to start from. None of it runs before `forge tools activate`.

  --description TEXT   one line: what the tool does
  --language LANGUAGE  python (default), shell or go; with --source the file's extension decides
  --usage TEXT         how to use it, for people and models that call it
  --source FILE        take this file as the source instead of the template; `-` reads it from standard input
  --param NAME:TYPE=DEFAULT
                       declare a parameter: `who`, `count:integer`, `depth:integer=6`, `tags:array=["a"]`. The type is
                       string (default), number, integer, boolean or array. A call must give a
                       parameter without a default, unless it is a boolean
  --test[=JSON]        declare a test: one call that must end with 0, or a case as in tool.yaml,
                       --test='{"arguments": {"who": "Ada"}, "expect": {"stdout": "Hello Ada\\n"}}'

Exit: 0 made, 2 the name or a text cannot be used, or the name is taken."""
_LANGUAGES: Final = {".py": "python", ".sh": "shell", ".go": "go"}
_LARGEST_SOURCE: Final = 10 << 20


def run_new(words: list[str]) -> int:
    languages = f"--language {'|'.join(_LANGUAGES.values())}"
    declared = ["NAME", "--description TEXT", languages, "--usage TEXT", "--source FILE"]
    declared += ["--param SPEC…", "--test JSON…"]
    asked = read_args("tools new", NEW_HELP, _with_bare_tests(words), *declared, usage="")
    try:
        parameters = [_parameter(spec) for spec in asked.param]
        tests = [_test_case(text, parameters) for text in asked.test]
    except ValueError as error:
        return print_usage_error("new", str(error))
    args: dict[str, Any] = {
        "name": asked.name,
        # Words that say nothing, so that two tools nobody has described yet are not alike.
        "description": f"The tool {asked.name}" if asked.description is None else asked.description,
        "language": asked.language or _language_of(asked.source or ""),
        "usage": asked.usage,
        "parameters": parameters,
        "tests": tests,
    }
    if asked.source is not None:
        source = _read_source(asked.source)
        if source is None:
            return 2
        args["source"] = source
    workshop, name = open_workshop(), asked.name
    try:
        creation = check_creation(workshop, build_catalog(), args, MANUAL_AUTHOR)
        made = create_tool_folder(creation)
    except InputInvalid as refused:
        text = refused.message.removeprefix(f"{CREATE_TOOL_NAME}: ")
        return fail("tools new", text.replace("/user_tools", workshop.display_folder("")), 2)
    folder = workshop.display_folder(name)
    print(escape_control_chars(f"Created custom tool '{name}' (draft) in {folder}: tool.yaml, {made}."))
    edit = "Edit the source so that it reads them" if parameters else "Edit the source"
    missing = [*(() if parameters else ("parameters",)), *(() if tests else ("at least one test",))]
    declare = f", declare {' and '.join(missing)} in tool.yaml" if missing else ""
    print(f"{edit}{declare}, then run `forge tools activate {name}`.")
    if notes := creation_notes(creation).strip():
        print(escape_control_chars(notes))
    return 0


_BARE_TEST: Final = "--test"
_SAMPLES: Final[dict[str, Any]] = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": []}
"""Type → a sample value for a first test."""


def _with_bare_tests(words: list[str]) -> list[str]:
    """`--test` takes a value only where a JSON object follows: it must not swallow the tool's name."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == f"{_BARE_TEST}=" and word.lstrip().startswith("{"):
            found[-1] += word
        else:
            found.append(f"{_BARE_TEST}=" if word == _BARE_TEST else word)
    return found


def _parameter(spec: str) -> dict[str, Any]:
    """Parses `NAME`, `NAME:TYPE`, `NAME=DEFAULT`, `NAME:TYPE=DEFAULT`; the manifest's own rules are checked later.
    Raises ValueError.
    """
    left, equals, text = spec.partition("=")
    name, _, kind = left.partition(":")
    found: dict[str, Any] = {"name": name, "type": kind or "string", "description": f"the {name}"}
    if found["type"] not in _SAMPLES:
        raise ValueError(f"--param {spec}: the type must be one of {', '.join(_SAMPLES)}")
    if not equals:
        return found if found["type"] == "boolean" else found | {"required": True}
    try:
        return found | {"default": text if found["type"] == "string" else json.loads(text)}
    except (ValueError, RecursionError):
        raise ValueError(f"--param {spec}: a default of type {found['type']} is written as JSON") from None


def _test_case(text: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    """A case as it was given, or one call that ends with 0. Raises ValueError."""
    if not text:
        needed = {each["name"]: _SAMPLES[each["type"]] for each in parameters if each.get("required")}
        return {"name": "runs", "arguments": needed, "expect": {"exit_code": 0}}
    try:
        case = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--test: not JSON: {error}") from None
    if not isinstance(case, dict):
        raise ValueError('--test: must be a JSON object, as {"arguments": {}, "expect": {"stdout": "hello\\n"}}')
    return case


def _language_of(source: str) -> str:
    return next((language for ending, language in _LANGUAGES.items() if source.endswith(ending)), "python")


def _read_source(path: str) -> str | None:
    """Reads the source; None after it printed why it cannot be used."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_SOURCE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_SOURCE + 1)
        if len(data) > _LARGEST_SOURCE:
            print_error("tools new", f"{path} is larger than {_LARGEST_SOURCE >> 20} MiB.")
        elif not data.strip():
            print_error("tools new", f"{path} is empty; leave --source out to start from a template.")
        else:
            return data.decode()
    except UnicodeDecodeError:
        print_error("tools new", f"{path} is not UTF-8 text.")
    except OSError as error:
        print_error("tools new", f"{path} cannot be read: {error.strerror}.")
    return None


BUILD_HELP: Final = """usage: forge tools build NAME… [--yes]

Compiles Go, checks the syntax of Python and shell, and installs the packages that a Python script names. The build
happens in the strictest walls and runs none of the tool's code. Before it downloads packages, it shows their hosts and
asks.

  --yes     download without a question, only for the tools that you name

Exit: 0 built, 1 it failed, 2 usage, 3 not agreed to fetch, 4 no such tool."""


def run_build(words: list[str]) -> int:
    return run_with_consent("build", BUILD_HELP, words, _build)


async def _build(workshop: Workshop, entry: ToolEntry, yes: bool) -> int:
    ready = await make_ready(workshop, entry)
    if ready.prepared is None:
        if not ask_fetch(workshop, "build", ready, yes):
            return DENIED
        await fetch_and_build(workshop, ready)
    print(f"tool '{entry.name}' is built")
    print_unread_packages(workshop, entry)
    return 0


ACTIVATE_HELP: Final = """usage: forge tools activate NAME… [--yes]

Builds the tool; none of its code runs yet. Shows what the tool may do and every line of it, or what changed since you
last trusted it, and asks. After a yes its tests run in the strictest walls. If all pass, people and models can call it.

  --yes     answer yes to the cards of the tools that you name

Exit: 0 active, 1 it could not be built, its tests failed or are missing, 2 usage, 3 not agreed, 4 no such tool."""


def run_activate(words: list[str]) -> int:
    return run_with_consent("activate", ACTIVATE_HELP, words, _activate)


async def _activate(workshop: Workshop, entry: ToolEntry, yes: bool) -> int:
    results = await activate_tool(workshop, entry, lambda ready: ask_trust(workshop, "activate", ready, yes))
    if results is None:
        return DENIED
    for result in results:
        print(result.line)
    print(f"tool '{entry.name}' is active")
    return 0


RETIRE_HELP: Final = """usage: forge tools retire NAME…

Switches tools off: Forge does not list them, and nobody can call them. The folder stays, and so does your trust.

Exit: 0 done, 1 it could not be kept, 2 usage, 4 no such tool."""
RESTORE_HELP: Final = """usage: forge tools restore NAME…

Switches retired tools on again. A tool that was active is active again, without a question.

Exit: 0 done, 1 it could not be kept, 2 usage, 4 no such tool."""


def run_retire(words: list[str]) -> int:
    return _switch_each("retire", RETIRE_HELP, words, retire_tool)


def run_restore(words: list[str]) -> int:
    return _switch_each("restore", RESTORE_HELP, words, restore_tool)


def _switch_each(verb: str, text: str, words: list[str], change: Callable[[Workshop, str], str]) -> int:
    names = list(dict.fromkeys(read_args(f"tools {verb}", text, words, "names:NAME+").names))
    workshop = open_workshop()
    if _any_missing(workshop, verb, names):
        return NOT_FOUND
    for name in names:
        print(change(workshop, name))
    return 0


def _any_missing(workshop: Workshop, verb: str, names: list[str]) -> bool:
    """Prints which folder there is not. One that is no usable tool is there: whoever repairs it later may not want it
    offered."""
    missing = [name for name in names if workshop.registry.lookup(name) is None]
    for name in missing:
        find_entry(workshop, verb, name)
    return bool(missing)


REMOVE_HELP: Final = """usage: forge tools remove NAME… [--yes]

Asks, then removes the folder. Forge keeps its versions: `forge tools undo NAME` brings the tool back.

  --yes     remove without a question

Exit: 0 removed, 1 it could not be removed, 2 usage, 3 not agreed, 4 no such tool."""


def run_remove(words: list[str]) -> int:
    asked = read_args("tools remove", REMOVE_HELP, words, "names:NAME+", "--yes")
    workshop, names = open_workshop(), list(dict.fromkeys(asked.names))
    if _any_missing(workshop, "remove", names):
        return NOT_FOUND
    worst = 0
    for name in names:
        worst = max(worst, _remove(workshop, name) if asked.yes or _ask_remove(workshop, name) else DENIED)
    return worst


def _ask_remove(workshop: Workshop, name: str) -> bool:
    folder = workshop.display_folder(name)
    if not can_ask():
        again = f"`forge tools remove {name} --yes` removes {folder}."
        print_error("tools remove", f"Forge cannot ask you here; {again}")
        return False
    if ask_yes(escape_control_chars(f"Remove {folder}? `forge tools undo {name}` brings it back. [y/N] ")):
        return True
    print_error("tools remove", f"'{name}' was not removed.")
    return False


def _remove(workshop: Workshop, name: str) -> int:
    try:
        done = remove_tool(home=workshop.home, store=workshop.store, name=name)
    except ForgeError as error:
        return fail("tools remove", error.message, 1)
    then = f"`forge tools undo {name}` brings it back"
    if done.set_aside is not None:
        then = f"Forge could not store its files as a version, so they are in {workshop.home.shown(done.set_aside)}"
    print(escape_control_chars(f"tool '{name}' is removed; {then}"))
    return 0


DIFF_HELP: Final = """usage: forge tools diff NAME [DIGEST [DIGEST]]

Shows what changed in a user tool since you last trusted it: what it may do, then every file as a unified diff.
If you never trusted the tool, everything is new.

  DIGEST           compare the tool with that version instead
  DIGEST DIGEST    compare two versions, the older one first; the folder may be gone

`forge tools log NAME` lists the versions; the first 6 hex digits of a digest are enough.
Exit: 0 done, 1 the files cannot be read, 2 usage, 4 no such tool."""

LOG_HELP: Final = """usage: forge tools log NAME [--json]

Lists the versions of a user tool, newest first: digest, the version in its tool.yaml, time, author, and whether it is
trusted. A change of any byte or exec bit makes a new version. Forge keeps the last 50 versions and all trusted ones,
also of a deleted tool.
Exit: 0 done, 2 usage, 4 no such tool."""

UNDO_HELP: Final = """usage: forge tools undo NAME [DIGEST] [--yes]

Brings back the previous version, or the version DIGEST; also of a deleted tool. Another `undo` goes one more step back.
Forge keeps the current files as a version: `forge tools undo NAME DIGEST` returns to them. A version that you trusted
before is still trusted. Forge asks before it brings back any other version, because that tool is then off until
`forge tools activate`.

  --yes     bring it back without a question

Exit: 0 done, 1 it could not be brought back, 2 usage, 3 not agreed, 4 no such tool."""


_VERSION_WIDTH: Final = 20


def run_diff(words: list[str]) -> int:
    asked = read_args("tools diff", DIFF_HELP, words, "name", "digests*")
    if len(asked.digests) > 2:
        return print_usage_error("diff", "two versions can be compared, not more")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "diff", asked.name)
    try:
        return _diff(workshop, asked.name, asked.digests)
    except (ForgeError, OSError) as error:
        return print_refusal("diff", error)


def run_log(words: list[str]) -> int:
    asked = read_args("tools log", LOG_HELP, words, "name", "--json")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "log", asked.name)
    present = tool_folder(workshop, asked.name).exists()
    rows = list_versions(workshop, asked.name)
    if asked.json:
        print_json({"name": asked.name, "present": present, "versions": [row.to_json() for row in rows]})
        return 0
    if rows:
        print(columns([("DIGEST", "VERSION", "TIME", "STATE", "AUTHOR"), *map(_version_row, rows)]))
    if not present:
        print_error("tools log", f"its folder is gone; `forge tools undo {asked.name}` brings it back.")
    elif not any(row.current for row in rows):
        print_error("tools log", f"the current folder is not a stored version. {status_line(workshop, asked.name)}")
    return 0


def run_undo(words: list[str]) -> int:
    asked = read_args("tools undo", UNDO_HELP, words, "name", "digest?", "--yes")
    if asked.digest == "":
        return print_usage_error("undo", "the digest is empty")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "undo", asked.name)
    try:
        agreed = partial(_ask_untrusted, workshop, asked.name, asked.yes)
        done = undo_version(workshop, asked.name, asked.digest or "", agreed)
    except (ForgeError, OSError) as error:
        return print_refusal("undo", error)
    before, change = done.before, done.change
    if change.digest == before:
        print(f"tool '{asked.name}' is at version {short_digest(before)} already.")
        return 0
    left = f" (before: {short_digest(before)})" if before else ""
    print(f"tool '{asked.name}' is at version {short_digest(change.digest)} again{left}.")
    print(status_line(workshop, asked.name))
    if change.set_aside is not None:
        stands = workshop.home.shown(change.set_aside)
        print_error("tools undo", f"Forge could not store the earlier files as a version; they are in {stands} now.")
    return 0


def _ask_untrusted(workshop: Workshop, name: str, yes: bool, current: str, digest: str) -> bool:
    """Whether a version may come back that nobody trusts. Without a terminal that takes a `--yes` where it would end a
    tool that is in use; where none is, nothing is lost."""
    store = workshop.store
    if yes or store.find_trust(name, digest) is not None:
        return True
    version = short_digest(digest)
    if can_ask():
        off = f"it is off until `forge tools activate {name}`"
        return ask_yes(f"Version {version} of '{name}' is not trusted: {off}. Bring it back? [y/N] ")
    if not current or store.find_trust(name, current) is None:
        return True
    again = f"`forge tools undo {name} {version} --yes` brings it back."
    print_error("tools undo", f"version {version} is not trusted, and Forge cannot ask you here; {again}")
    return False


def _diff(workshop: Workshop, name: str, digests: list[str]) -> int:
    found = compare_versions(workshop, name, digests)
    after = f"the folder now ({short_digest(found.new.digest)})"
    if found.after:
        after = f"version {short_digest(found.after)}"
    before = f"version {short_digest(found.before)}" if found.before else "nothing (no version was ever trusted)"
    if found.before and not digests:
        before = f"{before}, trusted last,"
    if found.old.digest == found.new.digest:
        print(f"tool '{name}': no difference between {before} and {after}")
        return 0
    print(f"tool '{name}': from {before} to {after}")
    print_difference("diff", name, found.old, found.new)
    return 0


def _version_row(row: VersionLogEntry) -> tuple[str, str, str, str, str]:
    states = ["trusted" if row.trusted else "untrusted", *(["now"] if row.current else [])]
    if row.restored:
        states.append("restored once" if row.restored == 1 else f"restored {row.restored} times")
    version = shorten(one_line(row.version), _VERSION_WIDTH) or "-"
    return short_digest(row.digest), version, local_time(row.at), ", ".join(states), row.author.describe()


def _print_unknown_tool(workshop: Workshop, verb: str, name: str) -> int:
    hint = nearest_remark(name, workshop.registry.entries)
    return fail(
        f"tools {verb}",
        f"no user tool '{name}', now or earlier{hint}. `forge tools list` shows them.",
        NOT_FOUND,
    )


def print_difference(verb: str, name: str, old: FolderFiles, new: FolderFiles) -> None:
    """Prints the difference of two versions; control characters were already escaped."""
    found = diff_versions(name, old, new)
    for line in found.access:
        print(one_line(line))
    print(found.changes)
    for warning in found.warnings:
        print_error(f"tools {verb}", f"warning: {warning}")
