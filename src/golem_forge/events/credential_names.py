"""Which argument names mean a credential: `api_key`, `authToken`, `X-Client-Secret`. Whole words only, so that
`max_tokens` and `secretary` are not taken for one."""

from __future__ import annotations

import re
from typing import Final

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CREDENTIALS: Final = frozenset(
    {
        "apikey",
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "authorization",
        "credential",
        "credentials",
        "cookie",
        "cookies",
        "jwt",
        "bearer",
        "authtoken",
        "accesstoken",
        "refreshtoken",
        "privatekey",
        "clientsecret",
        "secretkey",
        "accesskey",
        "signingkey",
        "sessionkey",
    }
)
_PAIRS: Final = frozenset(
    {
        ("api", "key"),
        ("private", "key"),
        ("secret", "key"),
        ("access", "key"),
        ("signing", "key"),
        ("session", "key"),
        ("encryption", "key"),
        ("auth", "key"),
        ("pass", "word"),
        ("pass", "phrase"),
    }
)
_MOST = 4096
KNOWN_NAMES: Final[dict[str, int]] = {}
"""Answers given before; `credential` fills it."""

NOT: Final = 0
INSIDE: Final = 1
"""The name speaks of a credential but goes on: `token_count`, `password_policy`."""
IS: Final = 2


def credential(name: str) -> int:
    """NOT, INSIDE or IS. Names repeat, so the answer is kept."""
    known = KNOWN_NAMES.get(name)
    if known is None:
        if len(KNOWN_NAMES) >= _MOST:
            KNOWN_NAMES.clear()
        known = KNOWN_NAMES[name] = _judge(name)
    return known


def _judge(name: str) -> int:
    words = [word.lower() for word in _WORD.findall(name[:256])]
    last = -1
    for place, word in enumerate(words):
        if word in _CREDENTIALS or (place and (words[place - 1], word) in _PAIRS):
            last = place
    if last < 0:
        return NOT
    return IS if last == len(words) - 1 else INSIDE
