"""Golden output: what a tool printed in its tests becomes what they expect (`forge tools test --update`).

`update` takes an entry and the results of its tests, rewrites `expect.stdout` of the cases that have one, or that
expect nothing at all, and leaves every other byte of `tool.yaml` alone. Refused for a case that did not end as
expected: its output is no example. Refuses altogether (ForgeError) if the file is no longer the one that was tested, or
if the new one would not read back as the old one with these texts in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ForgeError
from golem_forge.custom.diagnostic import Unusable
from golem_forge.custom.entry import Entry
from golem_forge.custom.manifest import MANIFEST, Manifest
from golem_forge.custom.testing.report import CaseResult

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome

_BOM: Final = b"\xef\xbb\xbf"
_LARGEST: Final = 64 * 1024
_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    data: bytes
    """The new `tool.yaml`; the old one if nothing changed."""
    updated: tuple[str, ...] = ()
    """Names of the cases whose expectation is another now."""
    refused: tuple[str, ...] = ()
    """`greets: not updated: timed out after 10 seconds`."""


def golden(data: bytes, manifest: Manifest, results: Sequence[CaseResult]) -> Golden:
    """`manifest`: what `data` says. Raises ForgeError."""
    from golem_forge.custom.testing.golden_text import expects_anything, with_stdout

    text = data.decode("utf-8-sig")
    printed: dict[int, str] = {}
    refused = []
    says_something = expects_anything(text)
    for index, (case, result) in enumerate(zip(manifest.tests, results, strict=True)):
        if case.expect.stdout is None and says_something[index]:
            continue
        if not result.as_expected:
            refused.append(f"{result.name}: not updated: {result.problems[0]}")
        elif result.stdout is None:
            refused.append(f"{result.name}: not updated: what it printed is not UTF-8 text")
        elif result.stdout != case.expect.stdout:
            printed[index] = result.stdout
    if not printed:
        return Golden(data=data, refused=tuple(refused))
    try:
        new = with_stdout(text, printed).encode()
    except (LookupError, ValueError):
        raise _by_hand() from None
    new = _BOM + new if data.startswith(_BOM) else new
    _must_read_back(new, manifest, printed)
    return Golden(data=new, updated=tuple(results[index].name for index in printed), refused=tuple(refused))


def update(home: ForgeHome, entry: Entry, results: Sequence[CaseResult]) -> Golden:
    """The same for the file in the tool's folder. Afterwards the folder is another version, which is trusted anew."""
    tools = os.open(home.path / "tools", _FOLDER)
    try:
        with _opened(entry.name, tools) as folder:
            data = _tested(folder, entry)
            made = golden(data, entry.manifest, results)
            if made.data != data:
                _put(made.data, tools, folder, data)
            return made
    except OSError as error:
        raise ForgeError(f"tool.yaml of '{entry.name}' could not be updated: {error.strerror}") from None
    finally:
        os.close(tools)


@contextlib.contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


def _read(folder: int) -> bytes:
    with open(os.open(MANIFEST, _LOOK, dir_fd=folder), "rb") as file:
        return file.read(_LARGEST + 1)


def _tested(folder: int, entry: Entry) -> bytes:
    data = _read(folder)
    known = next((fact.sha256 for fact in entry.files if fact.path == MANIFEST), "")
    if hashlib.sha256(data).hexdigest() != known:
        raise _changed_meanwhile()
    return data


def _put(data: bytes, tools: int, folder: int, old: bytes) -> None:
    """Whole or not at all. The unfinished file lies beside the folders, where no tool is looked for: in the folder it
    would be a part of the tool."""
    unfinished = f".new-{secrets.token_hex(8)}"
    try:
        with open(os.open(unfinished, _NEW, 0o600, dir_fd=tools), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), os.stat(MANIFEST, dir_fd=folder, follow_symlinks=False).st_mode & 0o777)
            os.fsync(file.fileno())
        if _read(folder) != old:
            raise _changed_meanwhile()
        os.rename(unfinished, MANIFEST, src_dir_fd=tools, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=tools)


def _must_read_back(data: bytes, old: Manifest, printed: Mapping[int, str]) -> None:
    from golem_forge.custom.manifest.reading import read_manifest

    tests = tuple(
        replace(case, expect=replace(case.expect, stdout=printed[index])) if index in printed else case
        for index, case in enumerate(old.tests)
    )
    try:
        same = read_manifest(data, folder=old.name) == replace(old, tests=tests)
    except Unusable as error:
        raise ForgeError(f"the expected output cannot be kept in tool.yaml: {error.message}") from None
    if not same:
        raise _by_hand()


def _by_hand() -> ForgeError:
    return ForgeError("tool.yaml is written in a way that cannot be updated; put the expected output in by hand")


def _changed_meanwhile() -> ForgeError:
    return ForgeError("tool.yaml changed while its tests ran; run them again")
