"""What the bytes of a file are: text (in which encoding) or binary, and of which type by name."""

from __future__ import annotations

import codecs
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from mimetypes import MimeTypes

SAMPLE_BYTES: Final = 8 * 1024
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS: Final = bytes(set(range(0x20)) - set(b"\t\n\v\f\r")) + b"\x7f"
_OCTETS: Final = "application/octet-stream"
_BINARY_ENDINGS: Final = frozenset(
    {".pdf", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".zip", ".gz", ".xz", ".7z", ".tar", ".so", ".dll"}
    | {".exe", ".bin", ".class", ".pyc", ".wasm", ".sqlite", ".mp3", ".mp4", ".woff2"}
)
_COMPRESSED: Final = {"gzip": "application/gzip", "xz": "application/x-xz", "bzip2": "application/x-bzip2"}
_TYPES_PYTHON_LACKS: Final = {
    ".7z": "application/x-7z-compressed",
    ".class": "application/java-vm",
    ".md": "text/markdown",
    ".sqlite": "application/vnd.sqlite3",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


class Decoded(NamedTuple):
    text: str
    encoding: str
    lossy: bool
    """Some bytes were no text in this encoding and became U+FFFD."""


def decode(data: bytes) -> Decoded:
    """UTF-16 if it begins with that mark, else UTF-8; the mark itself is dropped."""
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8"
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return Decoded(data.decode(encoding), encoding, False)
    except UnicodeDecodeError:
        return Decoded(data.decode(encoding, "replace"), encoding, True)


def has_binary_name(name: str) -> bool:
    return _ending(name) in _BINARY_ENDINGS


def looks_binary(data: bytes) -> bool:
    """A NUL or over 10 % control characters at the beginning."""
    sample = data[:SAMPLE_BYTES]
    if sample.startswith(_UTF16):
        sample = sample.decode("utf-16", "ignore").encode()
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in sample or controls * 10 > len(sample)


def media_type(name: str, *, binary: bool) -> str:
    """By the name's ending, unless the content is of another nature than the name says."""
    guessed, compression = _known_types().guess_type(name.replace(":", "_"))  # "data:…" would be read as a URL
    if compression:
        guessed = _COMPRESSED.get(compression, _OCTETS)
    if binary:
        return _OCTETS if guessed is None or guessed.startswith("text/") else guessed
    return guessed or "text/plain"


def _ending(name: str) -> str:
    dot = name.rfind(".")
    return name[dot:].lower() if dot >= 0 else ""


@cache
def _known_types() -> MimeTypes:
    """Python's own table alone: the machine's would make answers differ from one to the next."""
    from mimetypes import MimeTypes

    types = MimeTypes()
    for ending, name in _TYPES_PYTHON_LACKS.items():
        types.add_type(name, ending)
    return types
