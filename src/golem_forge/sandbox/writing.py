"""Writing a judged Target so that a reader, or a crash, meets the old content or the new, never a mix.

`write_atomic` does it whole. `stage` does all that can fail for want of space or rights and changes nothing under the
target's name; `commit` renames; `undo` takes a committed change back. A patch of several files needs the three, and
`keep`: the old file itself under a second name, found again after a crash; `release` lets it go. It makes a Staged
first and notes the names chosen, and only then has it `prepare`: whatever a crash leaves is known by name.
`removal.Removal` does for a delete what a Staged does for a write.
Threats: a hard link of a file outside must not be written through, so the name always gets a new inode; a directory
may be moved while we write, so its place is checked again right before the rename (`Target.must_be_in_place`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

from golem_forge.core.effects import Verb
from golem_forge.sandbox.access import DIRECTORY, Handle, Identity, identity_of
from golem_forge.sandbox.beside import content_of, new_file, second_name, sync, temp_name, times_of, unlink_if_there
from golem_forge.sandbox.errors import from_os_error, path_changed, permission_denied, too_large
from golem_forge.sandbox.target import Target

WRITE_LIMIT: Final = 10 * 1024 * 1024


def write_atomic(target: Target, data: bytes) -> None:
    """Put `data` under the target's name, making the directories it lacks."""
    stage(target, data).commit()


def stage(target: Target, data: bytes, *, like: Target | None = None) -> Staged:
    """The new content, safe on disk beside its destination under a temporary name.

    It gets the rights of the file it replaces, or of `like`: the one a move takes away.
    """
    staged = Staged(target, data, like=like)
    staged.prepare()
    return staged


class Staged:
    """New content waiting for its name: made ready by `prepare`, ended by `commit` or `discard`, then `let_go`."""

    def __init__(self, target: Target, data: bytes, *, like: Target | None = None) -> None:
        if target.access is not Verb.WRITE:
            raise ValueError("this target was not judged for write")
        if len(data) > WRITE_LIMIT:
            raise too_large(target.virtual, len(data), WRITE_LIMIT, "Write it as several files.")
        assert target.parent is not None
        assert target.zone is not None
        self.target = target
        self._data = data
        self._like = like or target
        self._opener = target.zone.opener
        self._held: dict[Target, Handle | None] = {each: each.entry for each in (target, self._like)}
        """Ours too: a call that gives up meanwhile closes the target under us."""
        self._base: Handle | None = target.parent
        self._at: Handle | None = target.parent
        self._made: list[tuple[str, ...]] = []
        """Directories made for this write, each by its components below `_base`; a handle for each is too many."""
        self._new: Identity | None = None
        self.temp = temp_name()
        """Where the new content waits; empty once it waits no more."""
        self.second = temp_name() if target.stat is not None else ""
        """The name `keep` will give the old file, in its own directory."""
        self.kept = ""
        """The same, while the old file has it."""
        self.applied = False
        """The name stands for the new content, whether or not `commit` came to its end."""

    @property
    def made(self) -> int:
        """How many of the directories above the file are made for it."""
        return max(self.target.missing - 1, 0)

    def prepare(self) -> None:
        """Everything that needs space or rights; nothing of it shows under the target's name."""
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place()
            self._make_directories()
            self._temp_file([self._data], self._like.stat, self._content(self._like))

    def keep(self) -> None:
        """Give the old file a second name until `release`, so that `undo` can put that very file back."""
        if self.target.stat is None:
            return
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place(self._directory)
            second_name(self.second, self.target, self._directory, lambda: self._content(self.target))
            self.kept = self.second

    def commit(self) -> None:
        """Give the content its name, after one last look that the judged place is still the judged place."""
        with self._cleaned_up_on_failure():
            self.target.must_be_in_place(self._directory)
            self._rename(self.temp)
            self.temp, self.applied = "", True
            self._sync_directories()

    def discard(self) -> None:
        """Leave nothing behind: neither the temporary file nor directories made for it."""
        unlink_if_there(self.temp, self._directory)
        self.temp = ""
        if not self.applied:
            self._at = self._base  # where descriptors ran out, this one is needed to remove what was made
        self._remove_made_directories()

    def undo(self) -> None:
        """Take a commit back: the old content, mode and times under the name again, or nothing where nothing was."""
        target = self.target
        with self._cleaned_up_on_failure():
            now = os.stat(target.name, dir_fd=self._directory.fd, follow_symlinks=False)
            if identity_of(now) != self._new:
                raise path_changed(target.virtual)
            if target.stat is None:
                os.unlink(target.name, dir_fd=self._directory.fd)
                self._remove_made_directories()
            elif self.kept:
                self._rename(self.kept)
                self.kept = ""
            elif target.unreadable or (old := self._held[target]) is None:
                raise permission_denied(target.virtual)
            else:
                self.temp = temp_name()
                self._temp_file(content_of(old), target.stat, old, times_of(target.stat))
                self._rename(self.temp)
                self.temp = ""
            self.applied = False
            with contextlib.suppress(OSError):  # it is back; making that last is all that failed
                self._sync_directories()

    def release(self) -> None:
        """Let the kept old file go."""
        unlink_if_there(self.kept, self._directory)
        self.kept = ""

    def let_go(self) -> None:
        """Of every handle: nothing more is asked of this."""
        self._base = self._at = None
        self._held.clear()

    @property
    def _directory(self) -> Handle:
        if self._at is None:
            raise ValueError("this write is over")
        return self._at

    def _content(self, target: Target) -> Handle | None:
        return self._held[target] or target.content()

    def _make_directories(self) -> None:
        """One handle at a time. One that appeared meanwhile serves as well, if it is a directory and no link."""
        names = self.target.parts[len(self.target.parts) - self.target.missing : -1]
        for depth, name in enumerate(names, 1):
            try:
                os.mkdir(name, 0o777, dir_fd=self._directory.fd)
                self._made.append(names[:depth])
            except FileExistsError:
                pass
            try:
                self._at = Handle(os.open(name, DIRECTORY, dir_fd=self._directory.fd))
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                    raise path_changed(self.target.virtual) from None
                raise

    def _temp_file(
        self,
        chunks: Iterable[bytes],
        rights: os.stat_result | None,
        attributes: Handle | None,
        times: tuple[int, int] | None = None,
    ) -> None:
        """Content in a file nobody else can open yet; on disk, with its final mode, before it gets its name."""
        self._new = new_file(self.temp, self._directory, chunks, rights, attributes, times)

    def _rename(self, name: str) -> None:
        os.rename(name, self.target.name, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd)

    def _sync_directories(self) -> None:
        sync(self._directory)
        for made in reversed(self._made):
            sync(self._above(made))

    def _above(self, made: tuple[str, ...]) -> Handle:
        if self._base is None:
            raise ValueError("this write is over")
        return Handle(self._opener(self._base.fd, made[:-1], DIRECTORY))

    def _remove_made_directories(self) -> None:
        while self._made:
            try:
                above = self._above(self._made[-1])
                os.rmdir(self._made[-1][-1], dir_fd=above.fd)
            except OSError:  # not empty: another file of the same patch is still there, or someone else uses it
                return
            self._made.pop()

    @contextlib.contextmanager
    def _cleaned_up_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise from_os_error(error, self.target.virtual) from None
        except BaseException:
            self.discard()
            raise
