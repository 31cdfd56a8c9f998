"""Applying: the planned files written and removed, all of them or none.

The names to be used are noted first. Then new contents are staged beside their targets and old files kept under second
names before anything shows, and each is renamed in. Any refusal, a cancel, or a target that is no longer the judged
one puts every file back, and directories made for it go too. Raises in the words of `failures.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.sandbox import files, writing
from golem_forge.sandbox.errors import SandboxError, io_error, path_changed
from golem_forge.sandbox.removal import Removal
from golem_forge.toolsets.edit.draft import Draft, FileDraft
from golem_forge.toolsets.edit.failures import NOTHING_CHANGED, refused
from golem_forge.toolsets.edit.manifest import FileRecord, Manifest

Step = writing.Staged | Removal


class Application:
    """One run of one draft: `apply`, then either `finish` or `take_back`."""

    def __init__(self, draft: Draft, *, home: Path | None, call_id: str, cancelled: Callable[[], bool]) -> None:
        self._draft = draft
        self._home = home
        self._call_id = call_id
        self._cancelled = cancelled
        self._steps: list[tuple[FileDraft, Step]] = []
        self._manifest: Manifest | None = None

    def apply(self) -> None:
        try:
            self._prepare()
            for _, step in self._steps:
                self._go_on()
                step.commit()
            self._go_on()
        except SandboxError as error:
            self.take_back()
            raise refused(error) from None
        except BaseException:
            self.take_back()
            raise

    def finish(self) -> None:
        """Nothing can fail any more: the kept files go."""
        if self._manifest is not None:
            self._manifest.done()
        for _, step in self._steps:
            step.release()
        if self._manifest is not None:
            self._manifest.remove()
        self._let_go()

    def take_back(self) -> None:
        """Every file as before. What someone else has changed by now is left as it is, and told."""
        try:
            self._take_back()
        finally:
            self._let_go()

    def _take_back(self) -> None:
        lost: list[str] = []
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
        if lost:
            if self._manifest is not None:
                self._manifest.close()
            text = "\n".join(("Patch not applied, but not everything could be put back:", *lost))
            raise ForgeError(text, code="NOT_RESTORED")
        if self._manifest is not None:
            self._manifest.remove()

    def _prepare(self) -> None:
        for file in self._draft.files.values():
            _must_be_unchanged(file)
        changed = [file for file in self._draft.files.values() if _changes(file)]
        for file in changed:
            if file.now is not None:
                like = file.moved_from.removal if file.moved_from is not None else None
                self._steps.append((file, writing.Staged(file.target, file.now, like=like)))
        for file in changed:
            if file.now is None and file.removal is not None:
                self._steps.append((file, Removal(file.removal)))
        if self._home is not None and self._steps:
            try:
                self._manifest = Manifest.write(self._home, self._call_id, [_record(*each) for each in self._steps])
            except OSError:
                raise io_error("FORGE_HOME/patches") from None
        for _, step in self._steps:
            self._go_on()
            step.prepare()
            step.keep()

    def _let_go(self) -> None:
        for _, step in self._steps:
            step.let_go()
        self._steps.clear()

    def _go_on(self) -> None:
        if self._cancelled():
            raise ForgeError(f"{NOTHING_CHANGED}\nInterrupted while it ran.", status=Status.INTERRUPTED)


def _changes(file: FileDraft) -> bool:
    if file.now is None:
        return file.existed
    return file.now != file.before or file.moved_from is not None


def _must_be_unchanged(file: FileDraft) -> None:
    """Size and time of change do not tell everything: two writes within one tick of the clock look alike."""
    digest = file.digest()
    if digest is not None and hashlib.sha256(files.read_bytes(file.target)).digest() != digest:
        raise path_changed(file.path)
    file.target.recheck()


def _record(file: FileDraft, step: Step) -> FileRecord:
    return FileRecord(
        path=file.path,
        real=file.target.real,
        existed=file.existed,
        before="" if file.before is None else hashlib.sha256(file.before).hexdigest(),
        after="" if file.now is None else hashlib.sha256(file.now).hexdigest(),
        kept=step.second,
        temp=step.temp,
        made=step.made,
    )
