"""CredentialFolder: secrets of the person in the system keyring where there is one, else in files of mode 0600.

Takes a folder below FORGE_HOME and names of records; gives the records back. An index in the folder says which records
there are, so nobody asks the keyring only to find out that there is nothing. A record that cannot be read counts as
missing. One that is too large raises ForgeError: it may hold secrets that are still in use. Blocking; call it off the
event loop. `keyring` is optional and loads on first use.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, locked, read_json, write_private

CredentialRecord = dict[str, Any]
MAX_CREDENTIAL: Final = 1 << 20
"""Maximum bytes of one record, and of the index."""
_SERVICE: Final = "golem-forge"
_INDEX: Final = "index.json"
_LOCK: Final = "lock"


class CredentialFolder:
    """`again`: what the person does about a file that is too large."""

    def __init__(self, home: ForgeHome, *folder: str, again: str) -> None:
        self._home = home
        self._folder = folder
        self._again = again

    def index(self) -> CredentialRecord:
        """Entry → what the owner of the folder keeps about it. No secret."""
        return self._read(_INDEX) or {}

    def load(self, name: str) -> CredentialRecord | None:
        return _from_keyring(name) or self._read(name)

    def save(self, entry: str, about: Any, name: str, record: CredentialRecord) -> Any:
        """Stores the record under `name` and `about` in the index. Returns what the index had; None: nothing."""
        text = json.dumps(record)
        in_keyring = _to_keyring(name, text)  # without the lock: the keyring may ask its user first
        with self._locked():
            index = self.index()
            before = index.get(entry)
            if in_keyring:
                self._path(name).unlink(missing_ok=True)
            else:
                self._write(name, text)
            self._write(_INDEX, json.dumps({**index, entry: about}))
        return before

    def read_entry(self, entry: str) -> Any:
        """Waits for a save that is under way. None: there is no such entry."""
        with self._locked():
            return self.index().get(entry)

    def remove_entry(self, entry: str) -> None:
        with self._locked():
            index = self.index()
            index.pop(entry, None)
            self._write(_INDEX, json.dumps(index))

    def forget(self, name: str) -> None:
        """Takes the record out of the keyring and off the disk."""
        _keyring("delete_password", name)
        self._path(name).unlink(missing_ok=True)

    def has_file(self, name: str) -> bool:
        return self._path(name).is_file()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two sessions may write at once; neither may lose the other's entry of the index."""
        lock = self._home.ensure(*self._folder) / _LOCK
        with locked(lock, self._home.shown(lock)):
            yield

    def _path(self, name: str) -> Path:
        return self._home.path.joinpath(*self._folder, name)

    def _read(self, name: str) -> CredentialRecord | None:
        path = self._path(name)
        try:
            return _mapping(read_json(path, MAX_CREDENTIAL))
        except JSON_FILE_ERRORS as error:
            if isinstance(error, OSError) and error.errno == errno.EFBIG:
                raise ForgeError(
                    f"{self._home.shown(path)} is larger than {MAX_CREDENTIAL} bytes; remove it and {self._again}",
                    code="LOGIN_UNREADABLE",
                ) from None
            return None

    def _write(self, name: str, text: str) -> None:
        self._home.ensure(*self._folder)
        write_private(self._path(name), text.encode())


def _mapping(value: Any) -> CredentialRecord | None:
    return value if isinstance(value, dict) else None


def _keyring(operation: str, *args: str) -> Any:
    """Calls the system keyring; None if the package is missing, has no real keyring behind it, or fails."""
    with contextlib.suppress(Exception):  # its back ends raise what they like
        import keyring  # type: ignore[import-not-found, unused-ignore]

        if keyring.get_keyring().priority >= 1:
            return getattr(keyring, operation)(_SERVICE, *args)
    return None


def _from_keyring(name: str) -> CredentialRecord | None:
    try:
        return _mapping(json.loads(_keyring("get_password", name)))
    except (TypeError, ValueError, RecursionError):
        return None


def _to_keyring(name: str, text: str) -> bool:
    """Stores a text in the keyring. Returns False if there is none, or it did not store it."""
    _keyring("set_password", name, text)
    return bool(_keyring("get_password", name) == text)
