"""Draft: the files of one patch as they will be, while nothing on disk has changed yet.

`fill_draft` works out every operation against the files as they are, or refuses with the one text that says what to
repair. Operations compose in order on the same path, which is the one after links. The draft holds the directory of
every target open from now to the run, each once. A move also counts as a read: it passes the content on. Refuses what
the sandbox refuses, and what cannot come after what was before it in the patch.

The diff at the prompt, the lines of the result and its semantic value are all made from the same draft that the run
writes. The old content of a secret file is in none of them; of its new content only the lines the patch itself names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.core.changes import LineChange
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.results import ToolResult
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import not_a_directory, not_a_file, not_found, too_large
from golem_forge.sandbox.handles import Handle
from golem_forge.sandbox.target import FileKind, Target
from golem_forge.toolsets.edit.locate import PatchedText, locate_chunks
from golem_forge.toolsets.edit.patch import AddFile, DeleteFile, Operation, PatchFailed, UpdateFile
from golem_forge.toolsets.file_access import decode, looks_binary, replaced_whole, unified_diff


@dataclass(slots=True, kw_only=True, eq=False)
class FileDraft:
    target: Target
    """The target, judged for write."""
    before: bytes | None
    """The old content; None if there is no file or it is too large to be read (`existed` tells which)."""
    now: bytes | None
    removal: Target | None = None
    """The same path judged for delete, once an operation removes the file."""
    deleted: bool = False
    """Whether a Delete removed it, after which only an Add may follow."""
    moved_from: FileDraft | None = None
    secret: bool = False
    """Its old content is shown to nobody who did not ask to read it."""
    touched: bool = False
    changes: list[LineChange] | None = None
    """The changed lines between `before` and `now`, if a single Update made them."""
    patch_lines: list[str] = field(default_factory=list)
    """The lines of the patch about this file, for the diff of a secret one."""
    executable: bool | None = None
    """The new executable bit; None leaves it (a new file has none)."""

    @property
    def path(self) -> str:
        return self.target.virtual

    @property
    def existed(self) -> bool:
        return self.target.exists

    @property
    def old_size(self) -> int:
        return self.target.stat.st_size if self.target.stat else 0

    def set_content(self, data: bytes | None, *, changes: list[LineChange] | None = None) -> None:
        if data is not None and len(data) > files.WRITE_LIMIT:
            raise too_large(self.path, len(data), files.WRITE_LIMIT, "Write it as several files.")
        self.changes = None if self.touched else changes
        self.touched = True
        self.now = data


class Draft:
    def __init__(
        self, resolve: Callable[[str, Verb], Target], effect: Callable[[Target], Effect], hidden: Callable[[str], bool]
    ) -> None:
        """`hidden` tells of a virtual path whether rules keep its content from being read without asking."""
        self._resolve = resolve
        self._effect = effect
        self._is_hidden = hidden
        self.files: dict[str, FileDraft] = {}
        """By virtual path, in the order in which the patch first names them."""
        self._effects: dict[tuple[Verb, str], Effect] = {}
        self._directories: dict[tuple[str, tuple[str, ...]], Handle] = {}
        self.notes: list[str] = []

    @property
    def effects(self) -> tuple[Effect, ...]:
        return tuple(self._effects.values())

    def targets(self) -> Iterator[Target]:
        for file in self.files.values():
            yield file.target
            if file.removal is not None:
                yield file.removal

    def close(self) -> None:
        for target in self.targets():
            target.close()
        self._directories.clear()

    def file_to_write(self, path: str) -> FileDraft:
        file = self._file(path)
        self.add_write(file)
        return file

    def add_write(self, file: FileDraft) -> None:
        self._add(self._effect(file.target))

    def add_move(self, file: FileDraft) -> None:
        """Threat: under its new name a secret, or what a rule keeps from being read, is a file like any other."""
        if file.existed:
            self._add(file.target.effect(Verb.READ))

    def existing_file(self, path: str, number: int) -> FileDraft:
        file = self._file(path)
        self.must_not_be_deleted(file, number)
        if file.now is None and not (file.existed and not file.touched):
            raise not_found(file.path)
        return file

    def must_not_be_deleted(self, file: FileDraft, number: int) -> None:
        if file.deleted:
            raise PatchFailed(f"line {number}: '{file.path}' is deleted by this patch; only an Add may follow")

    def remove(self, file: FileDraft, path: str) -> None:
        """The file's name will stand for nothing: it was deleted or moved."""
        if file.existed:
            if file.removal is None:
                removal = self._resolve_target(path, Verb.DELETE)
                removal.release_content()
                if removal.kind is FileKind.LINK:  # the name is a link: taking it away is not taking the file away
                    raise not_a_file(removal.virtual, "link")
                file.removal = removal
            self._add(self._effect(file.removal))
        file.set_content(None)
        file.moved_from = None

    def check_directories(self) -> None:
        """Checks that no file stands where another one needs a directory."""
        existing = {path for path, file in self.files.items() if file.now is not None}
        for path in existing:
            above = path.rpartition("/")[0]
            while above:
                if above in existing:
                    raise not_a_directory(above)
                above = above.rpartition("/")[0]

    def _add(self, effect: Effect) -> None:
        self._effects.setdefault((effect.verb, effect.target), effect)

    def _resolve_target(self, path: str, access: Verb) -> Target:
        """Resolves a target and reuses the directory handle that an earlier target of the patch holds."""
        target = self._resolve(path, access)
        if target.zone is not None and target.parent is not None:
            key = target.zone.name, target.parts[: len(target.parts) - max(target.missing, 1)]
            held = self._directories.setdefault(key, target.parent)
            if held.identity() == target.parent.identity():
                target.parent = held
        return target

    def _file(self, path: str) -> FileDraft:
        target = self._resolve_target(path, Verb.WRITE)
        known = self.files.get(target.virtual)
        if known is not None:
            target.close()
            return known
        too_big = target.stat is not None and target.stat.st_size > files.READ_LIMIT
        before = files.read_bytes(target) if target.exists and not too_big else None
        target.release_content()
        secret = Mark.SECRET_PATH in target.marks or self._is_hidden(target.effect().outer or target.virtual)
        file = self.files[target.virtual] = FileDraft(target=target, before=before, now=before, secret=secret)
        return file


def fill_draft(draft: Draft, operations: Sequence[Operation]) -> None:
    for operation in operations:
        if isinstance(operation, AddFile):
            file = draft.file_to_write(operation.path)
            file.set_content("".join(f"{line}\n" for line in operation.lines).encode())
            file.deleted = False
            file.moved_from = None
            file.patch_lines = [f"+{line}" for line in operation.lines]
        elif isinstance(operation, DeleteFile):
            file = draft.existing_file(operation.path, operation.number)
            draft.remove(file, operation.path)
            file.deleted = True
        else:
            _plan_update(draft, operation)
    draft.check_directories()


def _plan_update(draft: Draft, operation: UpdateFile) -> None:
    file = draft.existing_file(operation.path, operation.number)
    if file.now is None:
        raise too_large(file.path, file.old_size, files.READ_LIMIT, "Read and write it in parts with a program.")
    text = PatchedText(file.now, file.path)
    placed = locate_chunks(operation.chunks, text, secret=file.secret)
    draft.notes += placed.notes
    written = text.apply_edits(placed.edits) if operation.chunks else None
    words = [line.mark + line.text for chunk in operation.chunks for line in chunk.lines]
    destination = draft.file_to_write(operation.move_to) if operation.move_to is not None else file
    if destination is file:
        draft.add_write(file)
        if written is not None:
            file.set_content(written.data, changes=written.changes)
        file.patch_lines += words
        return
    draft.must_not_be_deleted(destination, operation.move_number)
    draft.add_move(file)
    destination.secret = destination.secret or file.secret
    destination.set_content(file.now if written is None else written.data)
    destination.patch_lines = [*file.patch_lines, *words]
    destination.changes = None if file.touched or written is None else written.changes
    origin = file.moved_from or file
    draft.remove(file, operation.path)
    destination.moved_from = origin if origin.existed else None


_MAX_ORIGINAL: Final = 100 * 1024


class PatchEntry(NamedTuple):
    """One file of the result: `A`, `M`, `D` its path, `R` old and new."""

    letter: str
    file: FileDraft
    source: FileDraft | None = None

    def __str__(self) -> str:
        moved = f"{self.source.path} -> " if self.source else ""
        return f"{self.letter} {moved}{self.file.path}"


def patch_entries(draft: Draft) -> list[PatchEntry]:
    """Returns the entries in the order in which the patch first names them; a moved file once, at its old name."""
    moved = {
        id(file.moved_from): file
        for file in draft.files.values()
        if file.moved_from is not None and file.now is not None and file.moved_from.now is None
    }
    destinations = {id(file) for file in moved.values()}
    found: list[PatchEntry] = []
    for file in draft.files.values():
        if id(file) in destinations:
            continue
        if id(file) in moved:
            found.append(PatchEntry("R", moved[id(file)], file))
        elif file.now is not None:
            found.append(PatchEntry("M" if file.existed else "A", file))
        elif file.existed:
            found.append(PatchEntry("D", file))
    return found


def patch_diff(listed: list[PatchEntry]) -> str:
    return "".join(_entry_diff(entry) for entry in listed)


def patch_result(draft: Draft, listed: list[PatchEntry], shown: str) -> ToolResult:
    text = "\n".join((patch_summary(listed) + ":", *map(str, listed), *draft.notes))
    value = (
        _single_file_value(listed[0])
        if len(listed) == 1 and not listed[0].file.secret
        else _multi_file_value(listed, shown)
    )
    value["summary"] = patch_summary(listed)
    if draft.notes:
        value["notes"] = list(draft.notes)
    return ToolResult(value=value, text=text)


def patch_summary(listed: list[PatchEntry]) -> str:
    return f"Patched {'1 file' if len(listed) == 1 else f'{len(listed)} files'}"


def _single_file_value(entry: PatchEntry) -> dict[str, Any]:
    file = entry.file
    old = (entry.source or file).before
    value: dict[str, Any] = {"kind": "diff", "path": file.path}
    if entry.source is not None:
        value["movedFrom"] = entry.source.path
    if old is not None and len(old) <= _MAX_ORIGINAL and not looks_binary(old):
        value["original"] = decode(old).text
    new = file.now or b""
    value |= {"modified": new.decode("utf-8", "replace"), "isNew": entry.letter == "A", "bytesWritten": len(new)}
    if file.now is None:
        value["deleted"] = True
    return value


def _multi_file_value(listed: list[PatchEntry], shown: str) -> dict[str, Any]:
    changed: list[dict[str, Any]] = []
    for entry in listed:
        one: dict[str, Any] = {"path": entry.file.path, "change": entry.letter}
        if entry.source is not None:
            one["movedFrom"] = entry.source.path
        one["bytesWritten"] = len(entry.file.now or b"")
        changed.append(one)
    value: dict[str, Any] = {"kind": "patch.result", "files": changed}
    if len(shown) <= _MAX_ORIGINAL:
        value["diff"] = shown
    return value


def _entry_diff(entry: PatchEntry) -> str:
    file, source = entry.file, entry.source
    if source is not None:
        renamed = f"rename from {source.path}\nrename to {file.path}\n"
        if file.existed:  # what is lost there is a change of its own
            gone = _secret_removal(file) if file.secret else unified_diff(file.path, file.before, None)
            renamed = gone + renamed
        if file.secret or source.secret:
            return renamed + (_secret_patch_lines(file, source) if file.patch_lines else "")
        return renamed + unified_diff(file.path, source.before, file.now, changes=file.changes, moved_from=source.path)
    if file.secret and file.now is None:
        return _secret_removal(file)
    if file.secret and file.existed:
        return _secret_patch_lines(file, file)
    if file.existed and file.before is None and not file.secret:
        if file.now is None:
            return f"--- a{file.path}\n+++ /dev/null\n# The old content ({file.old_size} bytes) is removed.\n"
        return replaced_whole(file.path, file.old_size, file.now)
    return unified_diff(file.path, file.before, file.now, changes=None if file.secret else file.changes)


def _secret_removal(file: FileDraft) -> str:
    size = f"The old content ({file.old_size} bytes)"
    return f"--- a{file.path}\n+++ /dev/null\n# {size} is a secret and not shown; it is removed.\n"


def _secret_patch_lines(file: FileDraft, source: FileDraft) -> str:
    """The patch's own lines: all that its author knows of the file, and all that changes."""
    header = f"--- a{source.path}\n+++ b{file.path}\n"
    note = f"# The old content ({source.old_size} bytes) is a secret and not shown; the lines of the patch:\n"
    return header + note + "".join(f"{line}\n" for line in file.patch_lines)
