"""JSON strings for the few names that every record repeats (tools, workers, callers, zones), kept once quoted."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii
from typing import Final

_MOST = 2048


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> str:
        if len(self) >= _MOST:
            self.clear()
        quoted = self[name] = encode_basestring_ascii(name)
        return quoted


NAMES: Final = _Names()
"""`NAMES[name]` is the quoted name. Only for names: texts that never come again would fill it."""
