"""Names of MCP servers: what may be one, and the one that a foreign name becomes.

A name that fits stays as it is. Another (`.mcp.json` belongs to programs with other rules) becomes its usable
characters and the hash of what it was, so that two foreign names stay two, in every order and after every restart.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_NAME: Final = re.compile(r"(?!.*__)[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_-]|_(?=_)")
_LONGEST_HEAD: Final = 23  # with `_` and 8 hex digits: 32
NAME_RULE: Final = "a letter or digit, then letters, digits, - and _, at most 32, no `__`"


def is_server_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def server_name(raw: str) -> str:
    """A valid name for any text."""
    if is_server_name(raw):
        return raw
    words = re.sub(r"_{2,}", "_", _STRANGE.sub("_", raw)).lstrip("_-")[:_LONGEST_HEAD].rstrip("_")
    suffix = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{words or 'server'}_{suffix}"
