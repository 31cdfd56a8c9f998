"""The `memory` toolset: short texts that outlive a session, by id, for one project or for the person everywhere.

MemoryStore keeps the memories of one scope, each a file `<id>.md` in a directory of FORGE_HOME, for its owner alone. No
path that a tool is given leads there; only a checked id does, and an id is never a path. A write is whole or not at
all; two Forge processes that write at the same time do so one after the other.

Reading is free. Saving asks and shows the diff, made when planning from the bytes that the run will write. Refused
before anyone is asked: a content with a known secret value, one too long, one memory too many. What is remembered is
read by later sessions, and by whatever model they use: a secret must never get there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from golem_forge.core.decisions import Status
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import pydantic, pydantic_core
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import LockTimeout, read_private, wait_for_lock, write_private
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.file_access import unified_diff, utc_text


class MemoryToolset:
    name = "memory"
    config = None

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        sandbox = self._sandbox or (ctx.sandbox if ctx else None)
        return [create_get_memory_tool(sandbox), create_save_memory_tool(sandbox)]


def create_get_memory_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return native_tool(
        "get_memory",
        "Read what was remembered in earlier sessions: one memory by its id, or without an id their list.",
        input_schema=_get_arguments,
        planner=partial(_plan_get, sandbox),
        needs_approval=needs_approval,
        label="Get memory",
        category="Memory",
        read_only=True,
    )


def scope_field() -> tuple[Any, Any]:
    text = "Whose memory: of this `project`, or of the `user` in every project."
    return Literal["project", "user"], pydantic.Field(default="project", description=text)


def _get_arguments() -> type[pydantic.BaseModel]:
    memory_id = pydantic.Field(
        default="", pattern=f"^({ID_PATTERN})?$", description="Which memory; without it, the list."
    )
    return pydantic.create_model("get_memory", memory_id=(str, memory_id), scope=scope_field())


def _plan_get(own: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    store = open_memory_store(MemoryScope(args.get("scope", MemoryScope.PROJECT)), own, ctx)
    memory_id = args.get("memory_id", "")
    target = f"memory:{store.scope}/{memory_id}" if memory_id else f"memory:{store.scope}"
    effect = Effect(verb=Verb.READ, target=target, real=store.path_of(memory_id))
    return Plan(run=partial(_get_one, store, memory_id) if memory_id else partial(_list_all, store), effects=(effect,))


def _get_one(store: MemoryStore, memory_id: str) -> ToolResult:
    data = store.read(memory_id)
    if data is None:
        known = ", ".join(entry.id for entry in store.entries()) or "none"
        raise ToolFailed(f"No memory '{memory_id}'. Known: {known}", code="NO_MEMORY")
    content = data.decode("utf-8", "replace")
    value = {"kind": "memory.entry", "scope": store.scope.value, "id": memory_id, "content": content, "size": len(data)}
    return ToolResult(value=value, text=content or "(empty)")


def _list_all(store: MemoryStore) -> ToolResult:
    entries = [{"id": entry.id, "size": entry.size, "modified": utc_text(entry.modified)} for entry in store.entries()]
    lines = [f"{entry['id']} ({entry['size']} bytes, {entry['modified']})" for entry in entries]
    value = {"kind": "memory.entry", "scope": store.scope.value, "entries": entries}
    return ToolResult(value=value, text="\n".join(lines) or f"No memories in scope '{store.scope}'.")


def create_save_memory_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return native_tool(
        "save_memory",
        "Remember a short text (at most 64 KiB) for later sessions, under an id. `mode: append` adds to the end of "
        "what is there, `replace` writes it anew.",
        input_schema=_save_arguments,
        planner=partial(_plan_save, sandbox),
        needs_approval=needs_approval,
        label="Save memory",
        category="Memory",
    )


def _save_arguments() -> type[pydantic.BaseModel]:
    def short_enough(content: str) -> str:
        if (size := len(content.encode())) > MAX_MEMORY_BYTES:
            problem = f"{size} bytes; the limit is {MAX_MEMORY_BYTES}"
            raise pydantic_core.PydanticCustomError("size", "{problem}", {"problem": problem})
        return content

    modes: Any = Literal["replace", "append"]
    memory_id = pydantic.Field(pattern=f"^{ID_PATTERN}$", description="Its name: small letters, digits, `_` and `-`.")
    return pydantic.create_model(
        "save_memory",
        memory_id=(str, memory_id),
        content=(
            Annotated[str, pydantic.AfterValidator(short_enough)],
            pydantic.Field(description="The text, as it is to be kept."),
        ),
        mode=(modes, pydantic.Field(default="replace", description="`replace` what is there, or `append` to it.")),
        scope=scope_field(),
    )


def _plan_save(own: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    store = open_memory_store(MemoryScope(args.get("scope", MemoryScope.PROJECT)), own, ctx)
    memory_id: str = args["memory_id"]
    old = store.read(memory_id)
    appends = args.get("mode", "replace") == "append"
    new = (old or b"" if appends else b"") + args["content"].encode()
    content = f"{memory_id}\n{new.decode('utf-8', 'replace')}"
    if ctx.redactor is not None and ctx.redactor.redact_secrets(content) != content:
        raise ForgeError(
            "The content holds a known secret value, and memory keeps no secrets; leave it out.",
            status=Status.POLICY_DENIED,
            code="SECRET_IN_MEMORY",
        )
    if len(new) > MAX_MEMORY_BYTES:
        text = (
            f"Memory '{memory_id}' would be {len(new)} bytes; the limit is {MAX_MEMORY_BYTES}. Replace it by "
            "a shorter text."
        )
        raise ToolFailed(text, code="TOO_LARGE")
    store.check_room(memory_id)
    target = f"memory:{store.scope}/{memory_id}"
    return Plan(
        run=partial(_save, store, memory_id, old, new),
        effects=(Effect(verb=Verb.WRITE, target=target, real=store.path_of(memory_id)),),
        diff=unified_diff(f"/memory/{store.scope}/{memory_id}", old, new),
    )


def _save(store: MemoryStore, memory_id: str, old: bytes | None, new: bytes) -> ToolResult:
    store.write(memory_id, new, instead_of=old)
    value = {
        "kind": "memory.entry",
        "scope": store.scope.value,
        "id": memory_id,
        "content": new.decode("utf-8", "replace"),
        "size": len(new),
    }
    return ToolResult(value=value, text=f"Saved memory '{memory_id}' ({len(new)} bytes).")


MAX_MEMORY_BYTES: Final = 64 * 1024
MAX_MEMORIES: Final = 200
ID_PATTERN: Final = "[a-z0-9][a-z0-9_-]{0,63}"
_ID_REGEX: Final = regex(ID_PATTERN)
_SUFFIX: Final = ".md"
_DIGEST_LENGTH: Final = 32


class MemoryScope(StrEnum):
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    id: str
    size: int
    modified: float
    """Seconds since the epoch."""


class MemoryStore:
    def __init__(self, directory: Path, scope: MemoryScope) -> None:
        self._directory = directory
        self.scope = scope

    def path_of(self, memory_id: str) -> str:
        """Returns the path of a memory, used only for the fingerprint."""
        return str(self._directory / memory_id)

    def read(self, memory_id: str) -> bytes | None:
        """Returns a memory, or None if it is missing or unreadable. Raises ToolFailed for one over MAX_MEMORY_BYTES."""
        if not _ID_REGEX.fullmatch(memory_id):
            return None
        try:
            return read_private(self._directory / f"{memory_id}{_SUFFIX}", MAX_MEMORY_BYTES)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise ToolFailed(
                    f"Memory '{memory_id}' is larger than {MAX_MEMORY_BYTES} bytes, so Forge did not write it. Shorten "
                    f"or remove memory/{self._directory.name}/{memory_id}{_SUFFIX} in FORGE_HOME.",
                    code="TOO_LARGE",
                ) from None
            return None

    def entries(self) -> list[MemoryEntry]:
        found: list[MemoryEntry] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._directory) as files:
            for file in files:
                name = file.name.removesuffix(_SUFFIX)
                if name != file.name and _ID_REGEX.fullmatch(name) and file.is_file(follow_symlinks=False):
                    info = file.stat(follow_symlinks=False)
                    found.append(MemoryEntry(name, info.st_size, info.st_mtime))
        return sorted(found, key=lambda entry: entry.id)

    def check_room(self, memory_id: str) -> None:
        known = [entry.id for entry in self.entries()]
        if memory_id not in known and len(known) >= MAX_MEMORIES:
            raise ToolFailed(
                f"Scope '{self.scope}' has {MAX_MEMORIES} memories already; replace or extend one of them."
            )

    def write(self, memory_id: str, data: bytes, *, instead_of: bytes | None) -> None:
        """Raises ToolFailed unless what is there is still what it was when the change was planned."""
        if not _ID_REGEX.fullmatch(memory_id):
            raise ValueError("not an id of a memory")
        try:
            for directory in (self._directory.parent.parent, self._directory.parent, self._directory):
                directory.mkdir(mode=0o700, exist_ok=True)
            with self._lock():
                if self.read(memory_id) != instead_of:
                    raise ToolFailed(f"Memory '{memory_id}' changed while it was being used; nothing was saved.")
                self.check_room(memory_id)
                write_private(self._directory / f"{memory_id}{_SUFFIX}", data)
        except LockTimeout:
            raise
        except OSError:
            raise ToolFailed(f"Memory '{memory_id}' could not be written; the old one is intact.") from None

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            wait_for_lock(lock, f"memory/{self._directory.name}")
            yield
            os.fsync(lock)
        finally:
            os.close(lock)


def open_memory_store(scope: MemoryScope, own: Sandbox | None, ctx: ToolContext) -> MemoryStore:
    """A project is the directory that the call's relative paths start from."""
    if ctx.home is None:
        raise ToolFailed("There is no FORGE_HOME here, so nothing can be remembered.", code="NO_MEMORY")
    if scope is MemoryScope.USER:
        return MemoryStore(ctx.home / "memory" / "user", scope)
    sandbox = own or ctx.sandbox
    zone = sandbox.zones[sandbox.default_zone] if sandbox and sandbox.default_zone else None
    if zone is None:
        raise ToolFailed("This worker has no zone and so no project to remember for; use scope 'user'.", code="NO_ZONE")
    digest = hashlib.sha256(os.fsencode(zone.host)).hexdigest()[:_DIGEST_LENGTH]
    return MemoryStore(ctx.home / "memory" / f"project-{digest}", scope)
