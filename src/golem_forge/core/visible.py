"""Makes text safe to show: every character that could steer a terminal or hide words becomes a visible escape.

Threat: a tool argument or file name with ESC sequences, bidi overrides, zero-width or tag characters can make a
prompt show something other than what will run. Newline and tab stay as they are.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029"  # characters without a shape
    "\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff"  # annotations, lone surrogates
    "\U000e0000-\U000e0fff]"  # tags and variation selector supplements
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def count_hidden(text: str) -> int:
    """How many characters `visible` would replace."""
    return 0 if text.isascii() and text.isprintable() else len(_UNSAFE.findall(text))
