"""Draft: the files of one patch as they will be, while nothing on disk has changed yet.

Operations compose in order on the same path, which is the one after links. Holds the directory of every target open
from now to the run, each once. A move hands on what it takes away, so it is a read as well. Refuses what the sandbox
refuses, and what cannot come after what was before it in the patch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.line_diff import Change
from golem_forge.sandbox import files, writing
from golem_forge.sandbox.access import Handle
from golem_forge.sandbox.errors import not_a_directory, not_a_file, not_found, too_large
from golem_forge.sandbox.target import Kind, Target
from golem_forge.toolsets.edit.failures import PatchFailed


@dataclass(slots=True, kw_only=True, eq=False)
class FileDraft:
    target: Target
    """Judged for write."""
    before: bytes | None
    """None: no file, or one too large to be read (`existed` tells which)."""
    now: bytes | None
    removal: Target | None = None
    """The same path judged for delete, once an operation takes the file away."""
    deleted: bool = False
    """By a Delete, after which only an Add may come."""
    moved_from: FileDraft | None = None
    secret: bool = False
    """Its old content is shown to nobody who did not ask to read it."""
    touched: bool = False
    changes: list[Change] | None = None
    """How `now` follows from `before`, while a single Update made it."""
    words: list[str] = field(default_factory=list)
    """The lines of the patch about this file, for the diff of a secret one."""

    @property
    def path(self) -> str:
        return self.target.virtual

    @property
    def existed(self) -> bool:
        return self.target.exists

    @property
    def old_size(self) -> int:
        return self.target.stat.st_size if self.target.stat else 0

    def digest(self) -> bytes | None:
        return None if self.before is None else hashlib.sha256(self.before).digest()

    def becomes(self, data: bytes | None, *, changes: list[Change] | None = None) -> None:
        if data is not None and len(data) > writing.WRITE_LIMIT:
            raise too_large(self.path, len(data), writing.WRITE_LIMIT, "Write it as several files.")
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
        self._hidden = hidden
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

    def to_write(self, path: str) -> FileDraft:
        """The file at a path that an operation gives content to."""
        file = self._file(path)
        self.will_be_written(file)
        return file

    def will_be_written(self, file: FileDraft) -> None:
        self._add(self._effect(file.target))

    def will_be_moved(self, file: FileDraft) -> None:
        """Threat: under its new name a secret, or what a rule keeps from being read, is a file like any other."""
        if file.existed:
            self._add(file.target.effect(Verb.READ))

    def existing(self, path: str, number: int) -> FileDraft:
        """The file at a path that an operation starts from."""
        file = self._file(path)
        self.must_not_be_deleted(file, number)
        if file.now is None and not (file.existed and not file.touched):
            raise not_found(file.path)
        return file

    def must_not_be_deleted(self, file: FileDraft, number: int) -> None:
        if file.deleted:
            raise PatchFailed(f"line {number}: '{file.path}' is deleted by this patch; only an Add may follow")

    def take_away(self, file: FileDraft, path: str) -> None:
        """The file's name will stand for nothing: it was deleted or moved."""
        if file.existed:
            if file.removal is None:
                removal = self._judged(path, Verb.DELETE)
                removal.set_down()
                if removal.kind is Kind.LINK:  # the name is a link: taking it away is not taking the file away
                    raise not_a_file(removal.virtual, "link")
                file.removal = removal
            self._add(self._effect(file.removal))
        file.becomes(None)
        file.moved_from = None

    def must_fit_together(self) -> None:
        """No file may be where another one needs a directory."""
        standing = {path for path, file in self.files.items() if file.now is not None}
        for path in standing:
            above = path.rpartition("/")[0]
            while above:
                if above in standing:
                    raise not_a_directory(above)
                above = above.rpartition("/")[0]

    def _add(self, effect: Effect) -> None:
        self._effects.setdefault((effect.verb, effect.target), effect)

    def _judged(self, path: str, access: Verb) -> Target:
        """With the handle of its directory that an earlier target of the patch already holds."""
        target = self._resolve(path, access)
        if target.zone is not None and target.parent is not None:
            key = target.zone.name, target.parts[: len(target.parts) - max(target.missing, 1)]
            held = self._directories.setdefault(key, target.parent)
            if held.identity() == target.parent.identity():
                target.parent = held
        return target

    def _file(self, path: str) -> FileDraft:
        target = self._judged(path, Verb.WRITE)
        known = self.files.get(target.virtual)
        if known is not None:
            target.close()
            return known
        too_big = target.stat is not None and target.stat.st_size > files.READ_LIMIT
        before = files.read_bytes(target) if target.exists and not too_big else None
        target.set_down()
        secret = Mark.SECRET_PATH in target.marks or self._hidden(target.effect().outer or target.virtual)
        file = self.files[target.virtual] = FileDraft(target=target, before=before, now=before, secret=secret)
        return file
