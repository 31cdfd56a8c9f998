"""The `edit` toolset: one tool, `apply_patch`, that changes several files of the sandbox at once, or none of them; also
after a crash.

The plan (PlannedPatch) holds the very bytes that the run will write. What is wrong with the patch's text is
`input_invalid`; what does not fit the files fails while planning, so nobody is asked about a patch that cannot work.
Cancelling while it runs puts every file back before the call ends.

The run (PatchApplication): the manifest is written to FORGE_HOME/patches (private, locked while its process lives); new
contents are staged beside their targets and old files kept under second names; then each is renamed in; then the
manifest is marked done, the kept files go, and the manifest is removed. Any refusal, a cancel, or a target that is no
longer the judged one puts every file back, and directories made for it go too. Raises PatchFailed and what the sandbox
refuses.

`recover_patches` takes back what a crash cut short, file by file, as far as nobody has touched the files since. A file
that no longer has the patch's bytes is left alone and named; so is one in no zone of this sandbox, and its patch waits
for a session that has the zone. Names out of a manifest are used only if they look like Forge's own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Any, Final, Self

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import asyncio, pydantic, pydantic_core
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError, io_error, path_changed
from golem_forge.sandbox.files import StagedDelete
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, Handle, entry_stat, identity_of
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.edit.draft import Draft, FileDraft, fill_draft, patch_diff, patch_entries, patch_result
from golem_forge.toolsets.edit.patch import (
    NOTHING_CHANGED,
    PatchFailed,
    PatchInvalid,
    has_padded_markers,
    parse_patch,
    patch_refused,
)
from golem_forge.toolsets.file_access import FileAccess, FileTool, ZoneApproval, checked_overrides

MAX_PATCH_BYTES: Final = 1024 * 1024
_MAX_ARGUMENTS: Final = 16 * 1024 * 1024
"""Above the patch's own limit, so that one just over it gets the answer that names that limit."""
_DESCRIPTION: Final = """\
Change files with a patch: all of it is applied, or nothing. At most 1 MiB and 200 operations. The form:
*** Begin Patch
*** Add File: path/new.py
+every line of the new file
*** Delete File: path/old.py
*** Update File: path/a.py
*** Move to: path/b.py
@@ def f():
 context line
-line to remove
+line to add
*** End Patch
`Move to` is optional. `@@ <line>` names a line above the change and may be stacked; every chunk after the first needs \
`@@`. Context and `-` lines must stand in the file as given, chunks in file order; about 3 lines of context each. \
`*** End of File` after a chunk: it matches at the end. Paths: /<zone>/…, or relative to the default zone."""
PatchStep = files.StagedWrite | StagedDelete
_FOLDER: Final = "patches"
_VERSION: Final = 1
_PLAIN_ID: Final = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_DONE_MARK: Final = b"\ndone\n"
_OWN_NAME: Final = regex(r"\.forge-[0-9a-f]{16}\.tmp")
_READ_CHUNK: Final = 1024 * 1024


class EditToolset:
    name = "edit"
    config = None

    def __init__(self, sandbox: Sandbox | None = None, *, zone_approval: ZoneApproval | None = None) -> None:
        self._sandbox = sandbox
        self._overrides = checked_overrides(sandbox, zone_approval or {})

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        access = FileAccess(self._sandbox or (ctx.sandbox if ctx else None), self._overrides)
        return [_APPLY_PATCH.create(access)]


def create_apply_patch_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return _APPLY_PATCH.create(FileAccess(sandbox), needs_approval)


def _arguments() -> type[pydantic.BaseModel]:
    def small_enough(value: str) -> str:
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > MAX_PATCH_BYTES:
            raise pydantic_core.PydanticCustomError(
                "too_large", "is {size} bytes; the limit is {limit}", {"size": size, "limit": MAX_PATCH_BYTES}
            )
        return value

    text = "The patch, from `*** Begin Patch` to `*** End Patch`."
    return pydantic.create_model(
        "apply_patch", input=(Annotated[str, pydantic.AfterValidator(small_enough)], pydantic.Field(description=text))
    )


def _plan(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    draft = _draft(access, args["input"], ctx)
    planned = PlannedPatch(draft, ctx)
    effects = draft.effects
    return Plan(run=planned.run, effects=effects, diff=planned.diff, recheck=planned.recheck, close=draft.close)


_APPLY_PATCH: Final = FileTool(
    name="apply_patch",
    description=_DESCRIPTION,
    label="Apply patch",
    arguments=_arguments,
    planner=_plan,
    always=Verb.WRITE,
    aliases={"patch": "input"},
    max_argument_bytes=_MAX_ARGUMENTS,
)


def _draft(access: FileAccess, text: str, ctx: ToolContext) -> Draft:
    """The patch as written; if that fits no file and some markers have blanks before them, with these as markers."""
    try:
        return _read_patch(access, text, ctx, padded=False)
    except (PatchInvalid, PatchFailed, SandboxError) as error:
        if not has_padded_markers(text):
            raise
        try:
            return _read_patch(access, text, ctx, padded=True)
        except (PatchInvalid, PatchFailed, SandboxError):
            raise error from None


def _read_patch(access: FileAccess, text: str, ctx: ToolContext, *, padded: bool) -> Draft:
    operations = parse_patch(text, padded=padded)

    def resolve(path: str, verb: Verb) -> Target:
        return access.target(path, verb, ctx)

    def is_hidden(virtual: str) -> bool:
        """Whether a rule keeps this file from being read unasked: then failures and diffs must not show its lines."""
        return any(
            Verb.READ in rule.access and rule.verdict is not Verdict.PRE_APPROVED and rule.matches(virtual)
            for rule in ctx.path_rules()
        )

    draft = Draft(resolve, lambda target: access.effect(target, ctx), is_hidden)
    try:
        fill_draft(draft, operations)
    except BaseException as error:
        draft.close()
        if isinstance(error, SandboxError):
            raise patch_refused(error) from None
        raise
    return draft


class PlannedPatch:
    """A draft as a call's plan runs it: all files are written, or none."""

    def __init__(self, draft: Draft, ctx: ToolContext) -> None:
        self._draft = draft
        self._ctx = ctx
        self._listed = patch_entries(draft)
        self.diff = patch_diff(self._listed)

    def recheck(self) -> None:
        for target in self._draft.targets():
            try:
                target.recheck()
            except SandboxError as error:
                raise patch_refused(error) from None

    async def run(self) -> ToolResult:
        """Runs in a thread and waits for it even if cancelled: then every file is put back first."""
        given_up: list[bool] = []
        application = PatchApplication(
            self._draft,
            home=self._ctx.home,
            call_id=self._ctx.call_id,
            cancelled=lambda: bool(given_up) or bool(self._ctx.cancel),
        )
        work = run_in_thread(application.apply)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            given_up.append(True)
            while not work.done():  # however often this wait is cancelled
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if work.exception() is None:
                application.roll_back()
            raise
        if self._ctx.cancel:  # given after the last look, before anyone learned that it was done
            application.roll_back()
            raise asyncio.CancelledError
        application.finish()
        return patch_result(self._draft, self._listed, self.diff)


class PatchApplication:
    """One run of one draft: `apply`, then either `finish` or `roll_back`."""

    def __init__(self, draft: Draft, *, home: Path | None, call_id: str, cancelled: Callable[[], bool]) -> None:
        self._draft = draft
        self._home = home
        self._call_id = call_id
        self._cancelled = cancelled
        self._steps: list[tuple[FileDraft, PatchStep]] = []
        self._manifest: PatchManifest | None = None

    def apply(self) -> None:
        try:
            self._prepare()
            for _, step in self._steps:
                self._check_cancelled()
                step.commit()
            self._check_cancelled()
        except SandboxError as error:
            self.roll_back()
            raise patch_refused(error) from None
        except BaseException:
            self.roll_back()
            raise

    def finish(self) -> None:
        """Removes the kept copies after all files are in place."""
        if self._manifest is not None:
            self._manifest.done()
        for _, step in self._steps:
            step.release()
        if self._manifest is not None:
            self._manifest.remove()
        self._close_steps()

    def roll_back(self) -> None:
        """Every file as before. A file that someone else has changed by now is left alone and named in the error."""
        lost: list[str] = []
        try:
            for file, step in reversed(self._steps):
                try:
                    if step.applied:
                        step.undo()
                    else:
                        step.discard()
                        step.release()
                except SandboxError as error:
                    where = f"; its old content is in '{step.kept}' beside it" if step.kept else ""
                    lost.append(f"'{file.path}' could not be restored ({error.code}){where}.")
            for _, step in reversed(self._steps):  # directories that were not empty before
                step.discard()
            if self._manifest is not None:
                if lost:
                    self._manifest.close()
                else:
                    self._manifest.remove()
        finally:
            self._close_steps()
        if lost:
            text = "\n".join(("Patch not applied, but not everything could be put back:", *lost))
            raise ForgeError(text, code="NOT_RESTORED")

    def _prepare(self) -> None:
        for file in self._draft.files.values():
            # Size and time of change do not tell everything: two writes within one tick of the clock look alike.
            if file.before is not None and files.read_bytes(file.target) != file.before:
                raise path_changed(file.path)
            file.target.recheck()
        changed = [
            file
            for file in self._draft.files.values()
            if (
                file.existed
                if file.now is None
                else file.now != file.before or file.moved_from is not None or file.executable is not None
            )
        ]
        for file in changed:
            if file.now is not None:
                like = file.moved_from.removal if file.moved_from is not None else None
                staged = files.StagedWrite(file.target, file.now, like=like, executable=file.executable)
                self._steps.append((file, staged))
        for file in changed:
            if file.now is None and file.removal is not None:
                self._steps.append((file, StagedDelete(file.removal)))
        if self._home is not None and self._steps:
            try:
                self._manifest = PatchManifest.write(
                    self._home, self._call_id, [_file_record(*each) for each in self._steps]
                )
            except OSError:
                raise io_error("FORGE_HOME/patches") from None
        for _, step in self._steps:
            self._check_cancelled()
            step.prepare()
            step.keep()

    def _close_steps(self) -> None:
        for _, step in self._steps:
            step.close()
        self._steps.clear()

    def _check_cancelled(self) -> None:
        if self._cancelled():
            raise ForgeError(f"{NOTHING_CHANGED}\nInterrupted while it ran.", status=Status.INTERRUPTED)


def _file_record(file: FileDraft, step: PatchStep) -> FileRecord:
    return FileRecord(
        path=file.path,
        real=file.target.real,
        existed=file.existed,
        before="" if file.before is None else _sha256(file.before),
        after="" if file.now is None else _sha256(file.now),
        kept=step.second,
        temp=step.temp,
        made=step.made,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file of a patch: enough to tell its old from its new content, and to find both."""

    path: str
    real: str
    existed: bool
    before: str
    """SHA-256; empty: no file, or too large to be read."""
    after: str
    """SHA-256 of the new content; empty if the file is deleted."""
    kept: str
    """The old file's second name, in the same directory; it may not have come to it."""
    temp: str
    """Name under which the new content waits, if it came to it."""
    made: int
    """How many parent directories did not exist before."""


class PatchManifest:
    def __init__(self, file: Path, fd: int) -> None:
        self._file = file
        self._fd = fd

    @classmethod
    def write(cls, home: Path, call_id: str, records: Sequence[FileRecord]) -> Self:
        folder = home / _FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Ids come from models and programs: one that is no plain name is hashed.
        plain = _PLAIN_ID.fullmatch(call_id)
        name = call_id if plain else _sha256(call_id.encode("utf-8", "replace") or os.urandom(16))[:32]
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = folder / f"{name}.json"
        try:
            fd = os.open(file, flags, 0o600)
        except FileExistsError:  # the same call, tried again after a crash that nobody has looked at yet
            file = folder / f"{name}.{os.urandom(4).hex()}.json"
            fd = os.open(file, flags, 0o600)
        manifest = cls(file, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = {"version": _VERSION, "files": [asdict(record) for record in records]}
            manifest._append(json.dumps(content).encode())
            _sync_folder(folder)
        except BaseException:
            manifest.remove()
            raise
        return manifest

    def done(self) -> None:
        """Marks the patch as complete; after a crash from here on only kept copies are removed."""
        with contextlib.suppress(OSError):
            self._append(_DONE_MARK)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink()
        self.close()

    def close(self) -> None:
        """Closes the manifest but leaves the file for a later session."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashedPatch:
    """A manifest whose process has died."""

    manifest: PatchManifest
    files: tuple[FileRecord, ...]
    done: bool


def crashed_patches(home: Path) -> Iterator[CrashedPatch]:
    """Each is locked while the caller handles it. A manifest that was cut short is removed: nothing had changed."""
    for file in sorted((home / _FOLDER).glob("*.json")):
        try:
            fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        manifest = PatchManifest(file, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = os.pread(fd, os.fstat(fd).st_size, 0)
        except OSError:  # its process lives
            manifest.close()
            continue
        records = _parse_records(data.removesuffix(_DONE_MARK))
        if records is None:
            manifest.remove()
            continue
        try:
            yield CrashedPatch(manifest=manifest, files=records, done=data.endswith(_DONE_MARK))
        finally:
            manifest.close()


def _parse_records(data: bytes) -> tuple[FileRecord, ...] | None:
    try:
        content: Any = json.loads(data)
        if content["version"] != _VERSION:
            return None
        return tuple(FileRecord(**record) for record in content["files"])
    except (ValueError, TypeError, KeyError):
        return None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


class _RestoreResult(Enum):
    AS_BEFORE = auto()
    RESTORED = auto()
    LEFT = auto()
    LEFT_BESIDE_ITS_OLD_CONTENT = auto()
    ELSEWHERE = auto()


def recover_patches(home: Path, sandbox: Sandbox) -> list[str]:
    """Call it at the start of a session, before anything else changes files."""
    return [text for patch in crashed_patches(home) if (text := _roll_back(patch, sandbox))]


def _roll_back(patch: CrashedPatch, sandbox: Sandbox) -> str:
    results: dict[FileRecord, _RestoreResult] = {}
    for record in reversed(patch.files):
        target = _find_target(record, sandbox)
        if target is None:
            results[record] = _RestoreResult.ELSEWHERE
            continue
        with target:
            result = _RestoreResult.AS_BEFORE if patch.done else _restore(record, target)
            if result is _RestoreResult.LEFT and _has_kept_copy(record, target):
                result = _RestoreResult.LEFT_BESIDE_ITS_OLD_CONTENT
            else:
                _unlink(record.kept, target)
            results[record] = result
            _unlink(record.temp, target)
            restored = result in (_RestoreResult.AS_BEFORE, _RestoreResult.RESTORED)
            if restored and not record.existed and not patch.done:
                _remove_made(record, target)
    if _RestoreResult.ELSEWHERE not in results.values():
        patch.manifest.remove()
    return "" if patch.done else _recovery_message(results)


def _recovery_message(results: dict[FileRecord, _RestoreResult]) -> str:
    lines = ["A patch was cut short by a crash and has been taken back."]
    if restored := [record.path for record, result in reversed(results.items()) if result is _RestoreResult.RESTORED]:
        lines.append(f"Restored: {', '.join(restored)}")
    for record, result in reversed(results.items()):
        if result is _RestoreResult.LEFT:
            lines.append(f"Not restored: {record.path} was changed since.")
        elif result is _RestoreResult.LEFT_BESIDE_ITS_OLD_CONTENT:
            where = f"its old content is in '{record.kept}' beside it"
            lines.append(f"Not restored: {record.path} was changed since; {where}.")
        elif result is _RestoreResult.ELSEWHERE:
            lines.append(f"Not restored: {record.path} is in no zone that can be written here.")
    return "\n".join(lines)


def _find_target(record: FileRecord, sandbox: Sandbox) -> Target | None:
    """The very place the patch changed: a zone of the same name may lead elsewhere today."""
    for path in (record.path, record.real):
        with contextlib.suppress(SandboxError):
            target = sandbox.target(path, Verb.WRITE)
            if target.real == record.real:
                return target
            target.close()
    return None


def _restore(record: FileRecord, target: Target) -> _RestoreResult:
    now = _target_digest(target)
    if now == (record.before or None) and target.exists == record.existed:
        return _RestoreResult.AS_BEFORE
    if now != (record.after or None) or target.parent is None:
        return _RestoreResult.LEFT
    directory = target.parent.fd
    try:
        if not record.existed:
            os.unlink(target.name, dir_fd=directory)
            return _RestoreResult.RESTORED
        if not _is_own_name(record.kept, target):
            return _RestoreResult.LEFT
        with contextlib.closing(Handle(os.open(record.kept, CONTENT, dir_fd=directory))) as kept:
            if record.before and _handle_digest(kept) != record.before:
                return _RestoreResult.LEFT
        os.rename(record.kept, target.name, src_dir_fd=directory, dst_dir_fd=directory)
        return _RestoreResult.RESTORED
    except OSError:
        return _RestoreResult.LEFT


def _remove_made(record: FileRecord, target: Target) -> None:
    above = target.parts[:-1]
    for depth in range(len(above), max(len(above) - record.made, 0), -1):
        with contextlib.suppress(OSError):  # not empty: used by now
            if target.zone is not None:
                parent = target.zone.open(above[: depth - 1], DIRECTORY)
                os.rmdir(above[depth - 1], dir_fd=parent.fd)


def _target_digest(target: Target) -> str | None:
    """Returns the digest of the file; None if there is none, empty if it cannot be read."""
    if not target.exists:
        return None
    try:
        return _sha256(files.read_bytes(target))
    except SandboxError:
        return ""


def _handle_digest(file: Handle) -> str:
    known = hashlib.sha256()
    done = 0
    while chunk := os.pread(file.fd, _READ_CHUNK, done):
        known.update(chunk)
        done += len(chunk)
    return known.hexdigest()


def _has_kept_copy(record: FileRecord, target: Target) -> bool:
    """Whether the second name stands for anything but the file as it is now."""
    if target.parent is None or not _is_own_name(record.kept, target):
        return False
    kept = entry_stat(record.kept, target.parent.fd)
    return kept is not None and identity_of(kept) != target.identity


def _unlink(name: str, target: Target) -> None:
    if target.parent is not None and _is_own_name(name, target):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=target.parent.fd)


def _is_own_name(name: str, target: Target) -> bool:
    """Whether a manifest's name is one that Forge makes, in the target's own directory."""
    return target.missing <= 1 and _OWN_NAME.fullmatch(name) is not None
