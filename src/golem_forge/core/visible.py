"""Makes text safe to show: every character that could steer a terminal or hide words becomes a visible escape.

Threat: a tool argument or file name with ESC sequences, bidi overrides, zero-width or tag characters can make a
prompt show something other than what will run, and a row of variation selectors can hold a whole program in what looks
like an empty text. Newline and tab stay as they are.
`visible` is for everything that is decided upon or named; `visible_prose` for answers and people's own words, where a
joiner between two emoji makes them one picture: it stands between pictures, so there is no word that it could change.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029"  # characters without a shape
    "\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff"  # annotations, lone surrogates
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # formatting of hieroglyphs, shorthand, music
    "\ufe00-\ufe0e\U000e0000-\U000e0fff]"  # variation selectors, tags: any number of them is no wider than none
    # the last selector is common: it makes a picture of the symbol before it, or a key of what stands before U+20E3
    "|(?<![\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])\ufe0f(?!\u20e3)"
)

_PICTURE = "\u2194-\u2199\u2600-\u27bf\u2b1b\u2b1c\U0001f000-\U0001faff"
_UNSAFE_IN_PROSE = re.compile(
    # a joiner stays only with a picture on both sides; a picture may carry its variation selector
    f"(?:(?<=[{_PICTURE}])|(?<=[{_PICTURE}]\ufe0f))(\u200d)(?=[{_PICTURE}])|{_UNSAFE.pattern}"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def visible_prose(text: str) -> str:
    """`visible`, but for the joiners inside emoji."""
    if text.isascii():
        return visible(text)
    return _UNSAFE_IN_PROSE.sub(lambda match: match[1] or _escape(match), text)


def count_hidden(text: str) -> int:
    """How many characters `visible` would replace."""
    return 0 if text.isascii() and text.isprintable() else len(_UNSAFE.findall(text))
