"""Removal: a delete in steps, for changes of several files that must be made together.

Takes a target judged for delete. Refuses with PATH_CHANGED what is not the judged file any more; `undo` never writes
over what someone else has put there meanwhile.
"""

from __future__ import annotations

import contextlib
import os

from golem_forge.core.effects import Verb
from golem_forge.sandbox.access import Handle, identity_of
from golem_forge.sandbox.beside import is_there, sync, temp_name, unlink_if_there
from golem_forge.sandbox.errors import from_os_error, path_changed
from golem_forge.sandbox.target import Target


class Removal:
    """A delete that can be taken back: the file waits under a second name beside its own."""

    temp = ""
    made = 0

    def __init__(self, target: Target) -> None:
        if target.access is not Verb.DELETE:
            raise ValueError("this target was not judged for delete")
        assert target.parent is not None
        self.target = target
        self._at: Handle | None = target.parent
        self.applied = False
        self.second = self.kept = temp_name()

    def prepare(self) -> None:
        """Nothing to do yet: the file stays until `commit`."""

    def keep(self) -> None:
        """Nothing to do yet: it is kept by being removed."""

    def commit(self) -> None:
        target = self.target
        target.must_be_in_place()
        try:
            self._move(target.name, self.kept)
            self.applied = True
            now = os.stat(self.kept, dir_fd=self._directory.fd, follow_symlinks=False)
            if identity_of(now) != target.identity:  # put there between the look and the rename: not ours to take
                self.undo()
                raise path_changed(target.virtual)
            sync(self._directory)
        except OSError as error:
            raise from_os_error(error, target.virtual) from None

    def undo(self) -> None:
        """The file under its name again, unless something else stands there by now."""
        name, fd = self.target.name, self._directory.fd
        try:
            try:
                os.link(self.kept, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
                os.unlink(self.kept, dir_fd=fd)
            except FileExistsError:
                raise path_changed(self.target.virtual) from None
            except OSError:  # no second names here, or not for us
                if is_there(name, self._directory):
                    raise path_changed(self.target.virtual) from None
                self._move(self.kept, name)
        except OSError as error:
            raise from_os_error(error, self.target.virtual) from None
        self.applied = False
        with contextlib.suppress(OSError):  # it is back; making that last is all that failed
            sync(self._directory)

    def discard(self) -> None:
        """Nothing was prepared on disk."""

    def release(self) -> None:
        if self.applied:
            unlink_if_there(self.kept, self._directory)

    def let_go(self) -> None:
        """Of the handle: nothing more is asked of this."""
        self._at = None

    @property
    def _directory(self) -> Handle:
        if self._at is None:
            raise ValueError("this removal is over")
        return self._at

    def _move(self, name: str, other: str) -> None:
        os.rename(name, other, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd)
