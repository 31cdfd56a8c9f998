"""A tool's files as a person is to judge them: full text, or what changed against the version that was trusted last.

Gives lines that are safe to print, and warnings about what reading them does not tell. Every line of a file is set off
by a mark, so that no file can look like a line of the card. Threats: characters that steer a terminal, a file too long
to be read to its end, text that Python reads as other text than it is, compiled code that runs in place of its source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from golem_forge.core.file_diff import file_diff
from golem_forge.core.visible import count_hidden, visible
from golem_forge.custom.manifest import MANIFEST

if TYPE_CHECKING:
    from golem_forge.custom.registry.folder import FolderFiles

LONGEST_FILE: Final = 256 * 1024
"""In bytes; of a longer one the beginning and the end are shown."""
_END: Final = 32 * 1024
_MOST_TOGETHER: Final = 1 << 20
_MOST_COMPARED: Final = 1 << 20
_LONG_LINE: Final = re.compile(r"[^\n]{1001}")
_ELF: Final = b"\x7fELF"
_MARK: Final = "  | "
_ENCODING: Final = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
"""As Python reads it: a lone CR ends a line, too."""
_USUAL_ENCODINGS: Final = frozenset({"utf-8", "utf8", "ascii", "us-ascii"})
_COMPILED: Final = (".pyc", ".pyo", ".so", ".syso")


class CardFiles:
    """The files of one version, in the order in which they matter: manifest, program, the rest by name."""

    def __init__(self, files: FolderFiles, entrypoint: str, old: FolderFiles | None = None) -> None:
        self._new = files
        self._old = old
        first = (MANIFEST, entrypoint, f"{entrypoint}.go")
        names = {*files.files, *(old.files if old else ())}
        self._names = sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name))
        self._entrypoint = entrypoint
        self._room = _MOST_TOGETHER
        self.warnings: list[str] = []

    def full(self) -> str:
        return "\n".join(line for name in self._names for line in self._file(name))

    def changes(self) -> str:
        """Against the old version: nothing for a file that is the same."""
        assert self._old is not None
        return "\n".join(line for name in self._names for line in self._change(name, self._old))

    def unchanged(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if self._old and self._is_same(name, self._old))

    def _is_same(self, name: str, old: FolderFiles) -> bool:
        same_bit = (name in old.executable) == (name in self._new.executable)
        return same_bit and old.files.get(name) == self._new.files.get(name)

    def _file(self, name: str) -> Iterator[str]:
        data = self._new.files[name]
        marks = ", executable" if name in self._new.executable else ""
        text = _text(data)
        if text is None:
            yield f"{_shown(name)}: {self._kind(name, data)} ({_identity(data)}{marks})"
            self._warn_binary(name, data)
            return
        self._warn_text(name, text)
        yield f"{_shown(name)} ({_bytes(len(data))}{marks}):"
        yield from (_MARK + line for line in _lines(self._bounded(name, text)))

    def _change(self, name: str, old: FolderFiles) -> Iterator[str]:
        before, after = old.files.get(name), self._new.files.get(name)
        if before is not None and after is not None:
            was, now = name in old.executable, name in self._new.executable
            if was != now:
                yield f"{_shown(name)}: executable bit {'added' if now else 'removed'}"
        elif after is not None and name in self._new.executable:
            yield f"{_shown(name)}: is executable"
        if before == after:
            return
        one, other = _text(before), _text(after)
        if after is not None and other is None:
            yield f"{_shown(name)}: {_exchanged(self._kind(name, after), before, after)}"
            self._warn_binary(name, after)
            return
        if other is not None:
            self._warn_text(name, other)
        if before is not None and one is None:
            yield f"{_shown(name)}: {_exchanged('was binary', before, after)}"
        elif len(one or "") + len(other or "") > _MOST_COMPARED:
            yield f"{_shown(name)}: {_exchanged('too long to be compared', before, after)}"
            one = None
        if other is not None and one is None and len(other) > LONGEST_FILE:
            yield from (_MARK + line for line in _lines(self._bounded(name, other)))
        elif one is not None or other is not None:  # without an old text the new one is shown whole
            yield from _lines(self._bounded(name, "\n".join(file_diff(name, one, other))))

    def _kind(self, name: str, data: bytes) -> str:
        if data.startswith(_ELF) and name == self._entrypoint:
            return "prebuilt binary, source not shown"
        return "binary, not shown"

    def _bounded(self, name: str, text: str) -> str:
        """Safe to print, and no longer than can be read. What is left out is said in its place and as a warning."""
        most = min(LONGEST_FILE, self._room)
        if len(text) <= most:
            self._room -= len(text)
            return visible(text)
        end = min(_END, most // 2)
        self._room -= 2 * end
        left = len(text) - 2 * end
        self.warnings.append(f"{_shown(name)}: too long to be shown whole; {left:,} characters are left out")
        first, last = visible(text[:end]), visible(text[len(text) - end :])
        return f"{first}…\n[{left:,} characters of {_shown(name)} are left out]\n…{last}"

    def _warn_binary(self, name: str, data: bytes) -> None:
        if name == self._entrypoint and not data.startswith(_ELF):
            self.warnings.append(f"{_shown(name)}: is the program that runs, and cannot be shown as text")
        if name.endswith(_COMPILED) or "__pycache__" in name.split("/"):
            self.warnings.append(f"{_shown(name)}: compiled code, which may run in place of the source beside it")

    def _warn_text(self, name: str, text: str) -> None:
        text = text[:_MOST_TOGETHER]  # more of it is not shown, which is a warning of its own
        if hidden := count_hidden(text.replace("\r\n", "\n")):
            what = "character is shown as an escape" if hidden == 1 else "characters are shown as escapes"
            self.warnings.append(f"{_shown(name)}: {hidden} control or invisible {what}")
        if _LONG_LINE.search(text):
            self.warnings.append(f"{_shown(name)}: has lines of over 1000 characters; read them to their end")
        if encoding := _declared_encoding(text):  # whatever it is called: Python runs any file it is given
            self.warnings.append(
                f"{_shown(name)}: declares the encoding '{visible(encoding)}'; Python may read other code than is shown"
            )


def _exchanged(kind: str, before: bytes | None, after: bytes | None) -> str:
    old, new = ("nothing" if data is None else _identity(data) for data in (before, after))
    return f"{kind}: {old} -> {new}"


def _text(data: bytes | None) -> str | None:
    """None: there is none, or it is no text."""
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Split at LF only; other ends of a line are shown as what they are."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _declared_encoding(text: str) -> str:
    """What the first two lines tell Python, if it is not what is shown here."""
    for line in _LINE_END.split(text, 2)[:2]:
        if found := _ENCODING.match(line):
            name = found[1].lower().replace("_", "-")
            return "" if name in _USUAL_ENCODINGS or name.startswith("utf-8-") else found[1]
    return ""


def _shown(name: str) -> str:
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def _identity(data: bytes) -> str:
    return f"sha256 {hashlib.sha256(data).hexdigest()}, {_bytes(len(data))}"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count:,} bytes"
