"""The spellings under which a known value may turn up: as it is, JSON-escaped, URL-quoted, in base64, and by lines.

Base64 writes a value differently at each of the three places it can have in a group of three bytes; the characters
that do not depend on its neighbours are found inside any longer encoded text (`user:password` of a header).
"""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

_MIN_CORE = 8
"""Shorter pieces of base64 would also be found in ordinary words."""
_MIN_LINE = 16
"""Shorter lines of a value turn up elsewhere too."""
_WRAPPED_AT = (64, 76)
"""Where PEM and MIME (also the `base64` command) break their lines."""
_BREAK = re.compile(r"[\r\n]+|(?:\\r)?\\n")
_ARMOUR = "-----"


def forms(value: str) -> set[str]:
    found = {value}
    stripped = value.strip()
    for text in {value, stripped} - {""}:
        found |= {
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            json.dumps(text)[1:-1].replace("/", "\\/"),
        }
        raw = text.encode("utf-8", "surrogatepass")
        for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
            found |= {quoted, _lower_escapes(quoted)}
        found |= _base64_forms(raw)
    if stripped:
        found.add(stripped)
    return found


def line_forms(value: str) -> set[str]:
    """The pieces of a long secret that are shown alone where a text is shown line by line (`L7: …`)."""
    found = set()
    pieces = [piece.strip() for piece in _BREAK.split(value)]
    if len(pieces) > 1:
        for line in pieces:
            if len(line) >= _MIN_LINE and not line.startswith(_ARMOUR):  # `-----BEGIN …` is in every such file
                found |= {line, json.dumps(line)[1:-1], line.replace("/", "\\/")}
    for text in {value, value.strip(), value.strip() + "\n"}:
        encoded = base64.standard_b64encode(text.encode("utf-8", "surrogatepass")).decode()
        for width in _WRAPPED_AT:
            if len(encoded) > width:
                lines = [encoded[place : place + width] for place in range(0, len(encoded), width)]
                found |= {line for line in lines if len(line) >= _MIN_LINE}
                # A last line too short to be known alone is known by the one before it.
                found |= {newline.join(lines[-2:]) for newline in ("\n", "\r\n", "\\n", "\\r\\n")}
    return found


def _lower_escapes(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _base64_forms(raw: bytes) -> set[str]:
    found = set()
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode()
        found |= {text for text in (whole, whole.rstrip("=")) if len(text) >= _MIN_CORE}
        for before in range(3):
            encoded = encode(bytes(before) + raw).decode().rstrip("=")
            first = (before * 8 + 5) // 6  # characters that also hold bits of what stands before
            whole_chars = (before + len(raw)) * 8 // 6  # the last one may also hold bits of what follows
            core = encoded[first:whole_chars]
            if len(core) >= _MIN_CORE:
                found.add(core)
    return found
