"""From the bytes of a page to its text. Takes what the server says of the character set, trusts the bytes first.

A byte order mark wins over the header, the header over what the page says of itself; nothing said means UTF-8. What
does not fit becomes U+FFFD. Threat: Python knows "encodings" that are programs (rot13, unicode_escape) or take
forever (idna); only real character sets are used.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_META: Final = re.compile(rb"<meta\s[^>]{0,500}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_XML: Final = re.compile(rb"\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_.:-]{1,40})")
_LOOKED_AT: Final = 2048
_NO_CHARACTER_SETS: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape"}
    | {"undefined", "utf-7", "mbcs", "oem"}
)
_AS_BROWSERS_DO: Final = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030"}


def decode_page(body: bytes, content_type: str) -> str:
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    said = _HEADER.search(content_type)
    codec = _known(said[1]) if said else None
    if codec is None and (said_inside := _said_inside(body)):
        codec = _known(said_inside)
        if codec is not None and codec.startswith("utf-16"):
            codec = None  # it was just read as ASCII
    return body.decode(codec or "utf-8", "replace")


def _said_inside(body: bytes) -> str:
    beginning = body[:_LOOKED_AT]
    found = _XML.match(beginning) or _META.search(beginning)
    return found[1].decode("ascii") if found else ""


def _known(name: str) -> str | None:
    try:
        codec = codecs.lookup(name)
        b"x".decode(codec.name, "replace")  # raises LookupError for what makes no text
    except (LookupError, ValueError, UnicodeError):
        return None
    if codec.name in _NO_CHARACTER_SETS:
        return None
    return _AS_BROWSERS_DO.get(codec.name, codec.name)
