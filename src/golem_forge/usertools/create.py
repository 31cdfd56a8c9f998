"""`create_custom_tool`: a new tool folder, all files or none, after a person saw every one of them.

`check_creation` writes nothing and refuses (`input_invalid`) a name that is invalid, taken or reserved, a duplicate of
what exists, and what would not be a valid manifest. `scaffold` gives name → bytes; `write_tool_folder` puts them in
place. `find_similar` compares words and only warns; `find_identical` compares bytes and refuses. A tool's own name is
no difference, and two templates nobody has edited are not duplicates.

Threats: argument text that becomes code (a source is written as given, or is a constant template); a folder that is
seen half written, or a crash that leaves one (everything is written beside it under a hidden name first); two creators
of one name (one of them wins, and nothing of the other is left).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import Caller, Outcome
from golem_forge.core.decisions import AnsweredBy, Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.catalog import Catalog, schema_problem
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable, is_reserved, name_problem
from golem_forge.usertools.folder import ToolEntry, write_folder
from golem_forge.usertools.kept_program import RecordedProgram, find_program, kept_tool
from golem_forge.usertools.manifest import (
    MANIFEST_FILE,
    ArgumentStyle,
    BooleanFlags,
    OutputFormat,
    Parameter,
    ParameterType,
    PathUse,
    ToolManifest,
    argument_variable,
    is_real_test,
)
from golem_forge.usertools.manifest.schema import MAX_MANIFEST_BYTES, ManifestFault
from golem_forge.usertools.manifest.tool_yaml import manifest_from_values, manifest_text
from golem_forge.usertools.native_tools import CREATE_TOOL_NAME, MANIFEST_KEYS, create_tool_definition, invalid_field
from golem_forge.usertools.store.queries import Author, AuthorKind

if TYPE_CHECKING:
    from golem_forge.usertools.workshop import Workshop


def create_create_custom_tool(workshop: Workshop, catalog: Catalog) -> Tool:
    made: dict[str, Creation] = {}
    """By call, until its outcome is known."""

    def trust_what_was_shown(outcome: Outcome) -> None:
        """The card showed every file: where a person said yes to it, they need not say so again before the first run.
        Threat: files that changed since. Only the bytes that were shown are trusted."""
        creation = made.pop(outcome.call.id, None)
        by_person = outcome.decision is not None and outcome.decision.answered_by is AnsweredBy.PERSON
        if creation is None or not outcome.ok or not by_person:
            return
        entry = workshop.registry.lookup(creation.request.name)
        shown = {name: sha256(data).hexdigest() for name, data in creation.files.items()}
        if isinstance(entry, ToolEntry) and {fact.path: fact.sha256 for fact in entry.files} == shown:
            with contextlib.suppress(ForgeError):  # it could not be kept: the first run asks
                workshop.trust(entry, who="person")

    return create_tool_definition(partial(_plan_creation, workshop, catalog, made), trust_what_was_shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A checked request for a new tool."""

    workshop: Workshop
    request: NewTool
    manifest: ToolManifest
    files: dict[str, bytes]
    similar: tuple[str, ...]
    author: Author
    program: str = ""
    """The call of the program that it is made from."""
    untested: str = ""
    """Why a tool that is made from a program has no test."""


def check_creation(
    workshop: Workshop,
    catalog: Catalog,
    args: Mapping[str, Any],
    author: Author,
    program: RecordedProgram | None = None,
) -> Creation:
    """`program`: the one that `from_run` names. Writes nothing. Raises InputInvalid, in the words of this tool."""
    from golem_forge.usertools.trust import identical_tool, similar_tools

    workshop.registry.refresh()
    untested = ""
    if program is None:
        request = NewTool.read(args)
    else:
        request, untested = _from_program(workshop, catalog, program, args)
    name = request.name
    existing = {*workshop.registry.entries, *(each.tool for each in workshop.registry.diagnostics)}
    taken = {*catalog.names(), *catalog.aliases(), *workshop.native} - existing
    if problem := creation_problem(name, request.description, taken, existing):
        raise InputInvalid(f"{CREATE_TOOL_NAME}: {problem}")
    manifest, files = _new_manifest(request), scaffold(request)
    for at, case in enumerate(manifest.tests):
        if author.kind is AuthorKind.AGENT and not is_real_test(case):  # a person may begin with less
            known = "stdout, stdout_contains, stdout_matches, stderr_contains, json, files or an exit_code other than 0"
            raise invalid_field(f"tests[{at}].expect", f"a test says what must come out: {known}")
    if same := identical_tool(workshop, name, files):
        raise InputInvalid(f"{CREATE_TOOL_NAME}: identical to custom tool '{same}'")
    similar = similar_tools(workshop, name, request.description)
    return Creation(
        workshop=workshop,
        request=request,
        manifest=manifest,
        files=files,
        similar=similar,
        author=author,
        program=program.call if program is not None else "",
        untested=untested,
    )


_NOT_WITH_RUN: Final = ("source", "tests", "language", *MANIFEST_KEYS)


async def program_of(workshop: Workshop, args: Mapping[str, Any]) -> RecordedProgram | None:
    """The program that `from_run` names. Raises InputInvalid."""
    call = args.get("from_run")
    if not call:
        if isinstance(args.get("parameters"), Mapping):
            raise invalid_field("parameters", "is a list; only with `from_run` it maps names to literals")
        return None
    for key in _NOT_WITH_RUN:
        if args.get(key) not in (None, "", [], Language.PYTHON.value):
            raise invalid_field(key, "comes from the program; leave it out together with `from_run`")
    if args.get("parameters") and not isinstance(args["parameters"], Mapping):
        raise invalid_field("parameters", "with `from_run` it maps each name to the literal that it replaces")
    journal = workshop.journal()
    return await run_in_thread(lambda: find_program(journal, str(call)))


def _from_program(
    workshop: Workshop, catalog: Catalog, program: RecordedProgram, args: Mapping[str, Any]
) -> tuple[NewTool, str]:
    def output_of(name: str) -> OutputFormat | None:
        entry = workshop.registry.entries.get(name)
        return entry.manifest.output if entry is not None else None

    def parameters_of(name: str) -> Sequence[str]:
        tool = catalog.get(name)
        schema = tool.input_schema if tool is not None and not schema_problem(tool) else {}
        names, required = list(schema.get("properties") or ()), schema.get("required") or ()
        return sorted(names, key=lambda each: each not in required)

    base = {key: args[key] for key in ("name", "description", "usage", "version") if args.get(key)}
    try:
        return kept_tool(program, NewTool.read(base), args.get("parameters") or {}, output_of, parameters_of)
    except RecursionError:
        raise invalid_field("from_run", "that program is nested too deep to be kept") from None


async def _plan_creation(
    workshop: Workshop, catalog: Catalog, made: dict[str, Creation], args: dict[str, Any], ctx: ToolContext
) -> Plan:
    kind = AuthorKind.MANUAL if ctx.caller is Caller.HUMAN else AuthorKind.AGENT
    author = Author(kind, session=ctx.session_id, worker=ctx.worker)
    creation = check_creation(workshop, catalog, args, author, await program_of(workshop, args))
    _check_writable(creation.request, ctx)
    name, files = creation.request.name, creation.files
    address, folder = f"/user_tools/{name}", workshop.home.path / "tools" / name

    async def run() -> ToolResult:
        result = _creation_result(creation)
        made[ctx.call_id] = creation
        return result

    def write(file: str) -> Effect:
        target, real = f"{address}/{file}", str(folder / file)
        return Effect(verb=Verb.WRITE, target=target, real=real, zone_verdict=Verdict.ASK)

    return Plan(
        run=run,
        effects=tuple(map(write, files)),
        diff="".join(_new_file_diff(f"{address}/{file}", data) for file, data in files.items()),
        warnings=(
            "a yes also trusts these files as they are; each call of the tool is judged by itself",
            *(("it has no tests",) if not creation.manifest.tests and not creation.untested else ()),
            *((f"similar tools: {', '.join(creation.similar)}",) if creation.similar else ()),
            *((f"it has no test: {creation.untested}",) if creation.untested else ()),
        ),
    )


def _check_writable(request: NewTool, ctx: ToolContext) -> None:
    """A path that no run could write. Raises InputInvalid with what to add."""
    if "rw" in (request.manifest.get("zones") or {}).values():
        return
    for at, parameter in enumerate(request.parameters):
        if isinstance(parameter, Mapping) and parameter.get("path") == PathUse.WRITE:
            zones = ctx.sandbox.zones if ctx.sandbox is not None else {}
            writable = [name for name, zone in zones.items() if zone.mode is AccessMode.RW and name != USER_TOOLS]
            fix = f'add zones: {{"{writable[0]}": "rw"}}' if writable else "this worker has no writable zone"
            raise invalid_field(f"parameters[{at}].path", f"write needs a zone that the tool may write; {fix}")


def create_tool_folder(creation: Creation) -> str:
    """Makes the folder and records who did; gives the name of the source in it. Raises InputInvalid."""
    workshop, name = creation.workshop, creation.request.name
    try:
        write_tool_folder(workshop.home, name, creation.files)
    except FileExistsError:
        raise InputInvalid(f"{CREATE_TOOL_NAME}: tool '{name}' already exists at /user_tools/{name}") from None
    author = creation.author
    suggestion, sequence_ms = workshop.suggestions.claim_for(creation.request)
    workshop.created_names.add(name)
    workshop.store.record_creation(name, author, suggestion=suggestion, sequence_ms=sequence_ms)
    if author.kind is AuthorKind.AGENT:
        workshop.store.record_agent_edit(name, author.session, author.worker)
    workshop.registry.refresh()
    workshop.changes += 1
    return next(file for file in creation.files if file != MANIFEST_FILE)


def creation_notes(creation: Creation) -> str:
    """Returns further notes for the maker of the tool."""
    text = ""
    if creation.request.language == "go" and not creation.workshop.builder.has_go():
        text += " Go was not found on this machine; the tool cannot be built here."
    if creation.similar:
        text += f" Similar tools: {', '.join(creation.similar)}"
    return text


def _creation_result(creation: Creation) -> ToolResult:
    request, source = creation.request, create_tool_folder(creation)
    made = f"Created custom tool '{request.name}' (draft) in /user_tools/{request.name}: "
    next_step = "Edit the source, declare parameters and at least one test in tool.yaml, then call run_custom_tool."
    if request.source and any(map(is_real_test, creation.manifest.tests)):
        next_step = "Call run_custom_tool: it is tested, and offered under its own name from then on."
    if creation.program:
        next_step = "Its test replays the calls of the run. Call run_custom_tool to use it."
        if creation.untested:
            next_step = f"It has no test: {creation.untested}. Write one into tool.yaml, then call run_custom_tool."
    files = ", ".join(("tool.yaml", source, *request.files))
    text = f"{made}{files}. {next_step}{_arrival_text(creation)}{creation_notes(creation)}"
    data = {"tool_name": request.name, "version": request.version, "source_file": source, "state": "draft"}
    return ToolResult({"kind": "tool.created", "data": data, "summary": text}, text=text, structured=data)


def _arrival_text(creation: Creation) -> str:
    """Describes how the arguments reach the program, for the author of the source."""
    manifest = creation.manifest
    if not manifest.parameters or creation.program:
        return ""
    if manifest.arguments is ArgumentStyle.STDIN_JSON:
        keys = ", ".join(each.name for each in manifest.parameters)
        return f" Its arguments arrive as one JSON object on standard input: {keys}."
    if manifest.arguments is ArgumentStyle.ENV:
        names = ", ".join(argument_variable(each.name) for each in manifest.parameters)
        return f" Its arguments arrive as variables: {names}."
    flags = ", ".join(_flag_text(each, manifest.boolean_flags) for each in manifest.parameters)
    return f" Its arguments arrive as flags: {flags}."


def _flag_text(parameter: Parameter, style: BooleanFlags) -> str:
    name = f"--{parameter.name}"
    if parameter.type is ParameterType.ARRAY:
        return f"{name}=ITEM once for each item"
    if parameter.type is not ParameterType.BOOLEAN:
        return f"{name}={parameter.type.value.upper()}"
    words = {
        BooleanFlags.SWITCH: f"{name} or nothing",
        BooleanFlags.PAIR: f"{name} or --no-{parameter.name}",
        BooleanFlags.EQUALS: f"{name}=true or {name}=false",
    }
    return words[parameter.flag or style]


def _new_file_diff(address: str, data: bytes) -> str:
    lines = data.decode("utf-8", "replace").splitlines()
    return f"--- /dev/null\n+++ {address}\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


UNFINISHED_PREFIX: Final = ".new-"
"""Prefix of a folder that is being written; no tool can have such a name."""
DEFAULT_VERSION: Final = "1.0.0"

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Language(StrEnum):
    PYTHON = "python"
    SHELL = "shell"
    GO = "go"


_SUFFIXES: Final = {Language.PYTHON: ".py", Language.SHELL: ".sh", Language.GO: ".go"}


@cache
def template(language: Language) -> bytes:
    """The source of a new tool for which none was given."""
    return (Path(__file__).parent / "templates" / f"{language}.txt").read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTool:
    """The requested tool. Parameters and tests are plain values, checked when the files are made."""

    name: str
    description: str
    language: Language = Language.PYTHON
    usage: str = ""
    parameters: Sequence[Any] = ()
    source: str = ""
    """The source; empty means the language's template."""
    tests: Sequence[Any] = ()
    version: str = DEFAULT_VERSION
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of tool.yaml."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files of the folder."""

    @staticmethod
    def read(args: Mapping[str, Any]) -> NewTool:
        """Reads the arguments of `create_custom_tool`. Raises InputInvalid."""
        given = {key: value for key, value in args.items() if key != "from_run" and key not in MANIFEST_KEYS}
        given["manifest"] = {key: args[key] for key in MANIFEST_KEYS if args.get(key) is not None}
        try:
            given["language"] = Language(given.get("language", Language.PYTHON))
        except ValueError:
            raise invalid_field("language", f"must be one of {', '.join(Language)}") from None
        return NewTool(**given)

    @property
    def source_file(self) -> str:
        return self.name + _SUFFIXES[self.language]


def creation_problem(name: str, description: str, taken: Collection[str], existing: Collection[str]) -> str:
    """Why nothing is created, or nothing. `taken`: tools of the catalog; `existing`: folders of user tools."""
    for key, value in (("name", name), ("description", description)):
        if not value or not value.strip():
            return f"{key}: missing required parameter"
    if problem := name_problem(name):
        return problem
    if is_reserved(name):
        return f"tool name '{name}' is reserved"
    if name in taken:
        return f"'{name}' is the name of an existing tool; choose another name"
    for folder in existing:
        if folder.lower() == name.lower():
            return f"tool '{name}' already exists at /user_tools/{folder}"
    return ""


def scaffold(request: NewTool) -> dict[str, bytes]:
    """Returns the files of a new tool: the manifest, then the source."""
    if problem := creation_problem(request.name, request.description, (), ()):
        raise InputInvalid(f"{CREATE_TOOL_NAME}: {problem}")
    text = manifest_text(_new_manifest(request), stated=("parameters", "boolean_flags")).encode()
    if len(text) > MAX_MANIFEST_BYTES:
        problem = f"would be larger than {MAX_MANIFEST_BYTES // 1024} KiB; shorten what is in it"
        raise InputInvalid(f"{CREATE_TOOL_NAME}: {MANIFEST_FILE} {problem}")
    try:
        source = request.source.encode() or template(request.language)
    except UnicodeEncodeError:
        raise invalid_field("source", "contains half a surrogate pair, which is not a character") from None
    return {MANIFEST_FILE: text, request.source_file: source, **request.files}


def _new_manifest(request: NewTool) -> ToolManifest:
    given: dict[str, Any] = {
        "name": request.name,
        "description": request.description,
        "version": request.version,
        "entrypoint": request.source_file,
        "usage": request.usage,
        "boolean_flags": BooleanFlags.EQUALS.value if request.language is Language.GO else BooleanFlags.SWITCH.value,
        "parameters": list(request.parameters),
        "tests": list(request.tests),
        **request.manifest,
    }
    try:
        return manifest_from_values(given, request.name)
    except ManifestFault as fault:
        raise InputInvalid(f"{CREATE_TOOL_NAME}: {fault}", fields=((fault.where, fault.problem),)) from None


def write_tool_folder(home: ForgeHome, name: str, files: Mapping[str, bytes], executable: Collection[str] = ()) -> None:
    """Writes all files of a new tool or none. Raises Unusable for an invalid name, FileExistsError for one in use."""
    if problem := name_problem(name):
        raise Unusable(DiagnosticCode.NAME_INVALID, problem)
    for file in files:
        if "\0" in file or any(part in ("", ".", "..") for part in file.split("/")):
            raise Unusable(DiagnosticCode.UNREADABLE, f"{file[:80]!r} is not the name of a file in a tool's folder")
    tools = os.open(home.ensure("tools"), _DIRECTORY_FLAGS)
    try:
        if any(folder.lower() == name.lower() for folder in os.listdir(tools)):
            raise FileExistsError(name)
        _write_and_rename(tools, name, files, executable)
    finally:
        os.close(tools)


def _write_and_rename(tools: int, name: str, files: Mapping[str, bytes], executable: Collection[str]) -> None:
    made = UNFINISHED_PREFIX + os.urandom(8).hex()
    claimed = False
    try:
        write_folder(tools, made, files, executable)
        os.mkdir(name, 0o700, dir_fd=tools)  # of two creators one gets past this line
        claimed = True
        os.rename(made, name, src_dir_fd=tools, dst_dir_fd=tools)  # onto the empty folder, or it fails
        os.fsync(tools)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True, dir_fd=tools)
        if claimed:
            with contextlib.suppress(OSError):  # whatever somebody put there meanwhile is theirs
                os.rmdir(name, dir_fd=tools)
        raise


MIN_SIMILARITY: Final = 0.5
MOST_NAMED: Final = 3

_WORD: Final = regex(r"[^\W_]+")
_SHORTEST_WORD: Final = 3
_STOP_WORDS: Final = frozenset(["the", "and", "for", "with", "from", "into", "that", "this", "tool"])
_NAME_LINE: Final = regex(rb"^name[ ]*:[^\n]*\n?", re.MULTILINE)
_ENTRYPOINT_LINE: Final = regex(rb"^entrypoint[ ]*:[ ]*([\"']?)([^\s\"'#]+)\1[ ]*$", re.MULTILINE)


def find_similar(name: str, description: str, others: Mapping[str, str]) -> tuple[str, ...]:
    """The names of tools that say nearly the same of themselves, best first. `others`: name → description."""
    own = content_words(f"{name} {description}")
    found: list[tuple[float, str]] = []
    for other, text in others.items():
        words = content_words(f"{other} {text}")
        likeness = len(own & words) / len(own | words) if own and words else 0.0
        if other != name and likeness >= MIN_SIMILARITY:
            found.append((-likeness, other))
    return tuple(other for _, other in sorted(found)[:MOST_NAMED])


def find_identical(files: Mapping[str, bytes], name: str, others: Iterable[tuple[str, Mapping[str, bytes]]]) -> str:
    """The name of a tool with the same files; empty if there is none. `others`: name and files of each."""
    literal, own = _without_name(files), _with_generic_name(files, name)
    for other, other_files in others:
        if other == name or len(other_files) != len(files):
            continue
        if _without_name(other_files) == literal:
            return other
        if own is not None and _with_generic_name(other_files, other) == own:
            return other
    return ""


def content_words(text: str, ignored: Collection[str] = _STOP_WORDS) -> frozenset[str]:
    found = _WORD.findall(text.lower())
    return frozenset(word for word in found if len(word) >= _SHORTEST_WORD and word not in ignored)


def _without_name(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: _NAME_LINE.sub(b"", data, count=1) if path == MANIFEST_FILE else data for path, data in files.items()}


def _with_generic_name(files: Mapping[str, bytes], name: str) -> dict[str, bytes] | None:
    """Returns the files with `<name>` in place of the tool's name where it names its source; None if it does not, or is
    still a template.
    """
    found = _ENTRYPOINT_LINE.search(files.get(MANIFEST_FILE, b""))
    entrypoint = found[2].decode("utf-8", "replace") if found else ""
    stem, dot, ending = entrypoint.rpartition(".")
    if found is None or not dot or stem != name or entrypoint not in files:
        return None
    if files[entrypoint] in map(template, Language):  # nobody has written anything yet
        return None
    renamed, text = f"<name>.{ending}", files[MANIFEST_FILE]
    manifest = text[: found.start()] + b"entrypoint: " + renamed.encode() + text[found.end() :]
    changed = {path: data for path, data in files.items() if path != entrypoint}
    return _without_name({**changed, MANIFEST_FILE: manifest, renamed: files[entrypoint]})
