"""The person's own tools: what is in their folders, and trusting, activating, retiring, restoring and undoing them.

The same actions as `forge tools activate | retire | restore | undo`, in the same store; the session they are made from
takes them over at once, others with their next turn. A yes names the digest of the files and the hosts that a build
would fetch from, and is refused (409) when the folder differs by now. All of it runs off the session's loop; a build or
a test may take minutes. Files are shown as stored, bounded.
Threat: a folder that changes while it is read; text, diff and digest are of one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final

from pydantic import Field

from golem_forge.agent.tool_inventory import open_listing_workshop
from golem_forge.agent.user_tools import open_program_workshop
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import escape_control_chars
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ActionResult, ApiModel, ApiRefusal
from golem_forge.ui.web.api.operation import RequestedSession, operation
from golem_forge.usertools import trust
from golem_forge.usertools.diagnostics import Diagnostic
from golem_forge.usertools.folder import FolderFiles, ToolEntry
from golem_forge.usertools.manifest import MANIFEST_FILE
from golem_forge.usertools.overview import (
    is_known_tool,
    list_versions,
    short_digest,
    tool_details,
    undo_version,
)
from golem_forge.usertools.store.queries import AuthorKind
from golem_forge.usertools.workshop import Workshop

_CHANGED: Final = "The folder changed after the page showed it; read it again, then agree."
_MORE_HOSTS: Final = "It would download from hosts that the page did not show; read it again, then agree."
_BUSY: Final = "It is being activated already; the list shows the result."
_REFUSALS: Final = {
    404: "no such tool of the person's",
    409: "it is not what was shown, or it cannot be done; says why",
}
_BY_STATUS: Final = {Status.TOOL_NOT_FOUND: 404, Status.INPUT_INVALID: 422}
_MAX_DIGEST: Final = 200
_ACTIVATING: Final[set[str]] = set()
"""Folders of tools that are being activated: builds and tests are processes, and nobody needs two of the same."""


class ActivateRequest(ApiModel, title="ShownTool"):
    digest: str = Field(max_length=_MAX_DIGEST)
    """Of the files that were shown."""
    build_hosts: list[str] = Field(default_factory=list, max_length=100)
    """What it was shown to be built with."""


class DenyRequest(ApiModel, title="ShownDigest"):
    digest: str = Field(max_length=_MAX_DIGEST)


class UndoRequest(ApiModel, title="Back"):
    version: str = Field(default="", max_length=_MAX_DIGEST)
    """A digest, or its first 6 digits or more; empty: the version before."""


_tool_action = partial(operation, tag="tools", refusals=_REFUSALS)


@_tool_action("POST", "/api/sessions/{id}/tools/{name}/activate", "activate_tool")
async def activate_tool(subject: RequestedSession, name: str, body: ActivateRequest) -> ActionResult:
    """Trusts exactly the files that were shown, builds the tool, runs its tests, and offers it if they pass."""
    folder = str(subject.home.path / "tools" / name)
    if folder in _ACTIVATING:
        raise ApiRefusal(409, _BUSY)
    _ACTIVATING.add(folder)
    try:
        text = await run_in_thread(lambda: asyncio.run(_activate(subject, name, body)))
    finally:
        _ACTIVATING.discard(folder)
    return await _finish_action(subject, text)


@_tool_action("POST", "/api/sessions/{id}/tools/{name}/deny", "deny_tool")
async def deny_tool(subject: RequestedSession, name: str, body: DenyRequest) -> ActionResult:
    """Says no to the files that were shown: nothing of them ran, and the next card says how often they were denied."""

    def deny(workshop: Workshop) -> str:
        workshop.store.add_denial(name, _shown_entry(workshop, name, body.digest).digest)
        return f"tool '{name}' is not trusted; none of it ran"

    return await _run_action(subject, deny)


@_tool_action("POST", "/api/sessions/{id}/tools/{name}/retire", "retire_tool")
async def retire_tool(subject: RequestedSession, name: str) -> ActionResult:
    """Switches it off: nobody can call it. Its folder stays, and so does the trust in it."""
    return await _run_action(subject, lambda workshop: trust.retire_tool(workshop, _existing_name(workshop, name)))


@_tool_action("POST", "/api/sessions/{id}/tools/{name}/restore", "restore_tool")
async def restore_tool(subject: RequestedSession, name: str) -> ActionResult:
    """Switches a retired tool on again, as it was."""
    return await _run_action(subject, lambda workshop: trust.restore_tool(workshop, _existing_name(workshop, name)))


@_tool_action("POST", "/api/sessions/{id}/tools/{name}/undo", "undo_tool")
async def undo_tool(subject: RequestedSession, name: str, body: UndoRequest) -> ActionResult:
    """Brings back the version before, or the named one, also of a deleted tool. What is there now stays a version."""

    def undo(workshop: Workshop) -> str:
        if not is_known_tool(workshop, name):
            raise _unknown_tool(name)
        done = undo_version(workshop, name, body.version)
        if done.change.digest == done.before:
            return f"tool '{name}' is at version {short_digest(done.before)} already."
        text = f"tool '{name}' is at version {short_digest(done.change.digest)} again. "
        text += trust.status_line(workshop, name)
        if aside := done.change.set_aside:
            text += (
                f" Forge could not store the earlier files as a version; they are in {workshop.home.shown(aside)} now."
            )
        return text

    return await _run_action(subject, undo)


async def _run_action(subject: RequestedSession, act: Callable[[Workshop], str]) -> ActionResult:
    def act_in_workshop() -> str:
        workshop = open_listing_workshop(subject.home)
        try:
            with closing(workshop.store):
                workshop.registry.refresh()
                return act(workshop)
        except OSError as error:
            raise ApiRefusal(409, f"It could not be done: {error.strerror or type(error).__name__}.") from None
        except ForgeError as error:
            raise _refusal_for(error) from None

    return await _finish_action(subject, await run_in_thread(act_in_workshop))


async def _activate(subject: RequestedSession, name: str, shown: ActivateRequest) -> str:
    """In a loop of its own, as `forge tools activate` does it."""
    workshop = open_program_workshop(subject.home, subject.root)

    def agree(ready: trust.ReadyTool) -> bool:
        if not set(ready.hosts) <= set(shown.build_hosts):
            raise ApiRefusal(409, _MORE_HOSTS)
        if not workshop.trusts(ready.entry):
            workshop.trust(ready.entry, who="person")
        return True

    try:
        results = await trust.activate_tool(workshop, _shown_entry(workshop, name, shown.digest), agree)
        return "\n".join([f"tool '{name}' is active", *(result.line for result in results or ())])
    except ForgeError as error:
        raise _refusal_for(error) from None
    finally:
        workshop.store.close()


def _shown_entry(workshop: Workshop, name: str, shown: str) -> ToolEntry:
    """The tool as it is now, which must be what was shown."""
    found = workshop.registry.lookup(name)
    if found is None:
        raise _unknown_tool(name)
    if isinstance(found, Diagnostic):
        raise ApiRefusal(409, escape_control_chars(f"'{name}' is not a usable tool: {found.text}"))
    if found.digest != shown:
        raise ApiRefusal(409, _CHANGED)
    return found


def _existing_name(workshop: Workshop, name: str) -> str:
    """Also a folder that is no usable tool: whoever repairs it later may not want it offered."""
    if workshop.registry.lookup(name) is None:
        raise _unknown_tool(name)
    return name


def _unknown_tool(name: str) -> ApiRefusal:
    return ApiRefusal(404, f"There is no user tool '{escape_control_chars(name[:100])}'.")


def _refusal_for(error: ForgeError) -> ApiRefusal:
    return ApiRefusal(_BY_STATUS.get(error.status, 409), escape_control_chars(error.message))


async def _finish_action(subject: RequestedSession, text: str) -> ActionResult:
    await subject.refresh_tools()
    return ActionResult(text=subject.redact(text))


_MAX_FILE: Final = 256 * 1024
_MAX_TEXT: Final = 1 << 20
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


class UserToolModel(ApiModel, title="OwnTool"):
    """A tool folder of the person's, offered or not."""

    name: str
    state: str
    """`draft`, `built`, `tested`, `active`, `retired`; `unusable` where the folder is no tool as it is."""
    code: str = ""
    """Why it is not active, as a word: `untrusted`, `changed`, `tests_failed` …"""
    reason: str = ""
    """The same in a sentence."""
    description: str = ""
    version: str = ""
    digest: str = ""
    author: str = ""
    agent_made: bool = False
    imported: bool = False
    category: str = ""


class SourceFile(ApiModel, title="SourceFile"):
    """As it is stored: the person's own files are shown to them."""

    path: str
    size: int
    executable: bool
    sha256: str
    text: str | None = None
    """null: no text, or too long to be sent."""
    language: str = ""


class TrustQuestion(ApiModel, title="TrustQuestion"):
    """What a yes to `activate` is given to: these bytes, and these hosts while it is built."""

    digest: str
    text: str
    diff: str = ""
    warnings: list[str] = Field(default_factory=list)
    build_hosts: list[str] = Field(default_factory=list)
    problem: str = ""
    """Why it cannot be activated as it is."""


class UserToolDetail(ApiModel, title="OwnToolDetail"):
    folder: str
    version: str
    state: str
    code: str = ""
    reason: str = ""
    digest: str
    entrypoint: str
    author: str
    permissions: dict[str, str]
    tests: list[str]
    good: int
    bad: int
    notes: list[str]
    files: list[SourceFile]
    trust: TrustQuestion | None = None
    """null: nothing waits for a yes."""


@contextmanager
def workshop_of(subject: RequestedSession) -> Iterator[Workshop]:
    """The session's own where it has one: it knows what was trusted for the session alone."""
    placed = subject.runtime.user_tools if subject.runtime is not None else None
    if placed is not None:
        yield placed.workshop
        return
    workshop = open_listing_workshop(subject.home)
    with closing(workshop.store):
        yield workshop


def user_tool_rows(workshop: Workshop) -> list[dict[str, Any]]:
    """Every folder, by name: what state it is in, and why it is not offered if it is not."""
    workshop.registry.refresh()
    entries = workshop.registry.entries
    found: list[dict[str, Any]] = [
        {"name": fault.tool, "state": UNUSABLE, "code": str(fault.code), "reason": fault.message}
        for fault in workshop.registry.diagnostics
    ]
    for name, status in trust.tool_statuses(workshop, entries.values()).items():
        manifest, author = entries[name].manifest, workshop.store.provenance(name)
        found.append(
            {
                "name": name,
                "state": status.state.value,
                "code": str(status.why.code) if status.why is not None else "",
                "reason": status.why.message if status.why is not None else "",
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


def user_tool_detail(workshop: Workshop, entry: ToolEntry) -> dict[str, Any]:
    known = tool_details(workshop, entry)
    why, ratings = known.pop("skipped"), known.pop("ratings")
    del known["provenance"]
    return known | {
        "code": why["code"] if why else "",
        "reason": why["message"] if why else "",
        "good": ratings["good"],
        "bad": ratings["bad"],
        "notes": ratings["notes"],
        "files": _file_rows(workshop.registry.files(entry)),
        "trust": _trust_question(workshop, entry),
    }


def version_rows(workshop: Workshop, name: str) -> list[dict[str, Any]]:
    """The versions it has had, newest first; also of one that is gone."""
    rows = [row.to_json() | {"author": row.author.describe()} for row in list_versions(workshop, name)]
    return [{key: row[key] for key in row if key != "version"} for row in rows]


def _file_rows(found: FolderFiles) -> list[dict[str, Any]]:
    room, rows = _MAX_TEXT, []
    for fact in sorted(found.facts, key=lambda each: (each.path != MANIFEST_FILE, each.path)):
        text = _decoded_text(found.files[fact.path]) if fact.size <= min(_MAX_FILE, room) else None
        room -= len(text or "")
        rows.append(
            {
                "path": fact.path,
                "size": fact.size,
                "executable": fact.executable,
                "sha256": fact.sha256,
                "text": text,
                "language": _LANGUAGES.get(fact.path.rpartition(".")[2].lower(), ""),
            }
        )
    return rows


def _decoded_text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _trust_question(workshop: Workshop, entry: ToolEntry) -> dict[str, Any] | None:
    """What a yes would be given to; None: nothing waits for one."""
    if trust.tool_status(workshop, entry).state in (trust.ToolState.ACTIVE, trust.ToolState.RETIRED):
        return None
    problem, hosts = "", tuple[str, ...]()
    try:
        trust.check_promotable(workshop, entry)
        needs = workshop.builder.needs(entry, workshop.registry.files(entry))
        hosts = () if needs.cached else needs.hosts
    except ForgeError as error:
        problem = error.message
    snapshot = workshop.registry.snapshot(entry)
    ready = trust.ReadyTool(entry=entry, snapshot=snapshot, prepared=None, hosts=hosts)
    card = trust.make_trust_card(workshop, ready)
    return {
        "digest": entry.digest,
        "text": card.text,
        "diff": card.diff,
        "warnings": card.warnings,
        "build_hosts": hosts,
        "problem": problem,
    }
