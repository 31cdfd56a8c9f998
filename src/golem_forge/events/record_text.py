"""RecordText: values as they stand in a record of the journal: redacted, as JSON, never longer than a line may be."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from golem_forge.events.jsontext import encode

MAX_VALUE: Final = 4 * 1024 * 1024
"""Arguments are limited to 1 MiB before they are validated; escaping may make them longer."""
_ERROR_MAX: Final = 2000
_MOST_NAMES: Final = 1024


class RecordText:
    def __init__(self, redact: Callable[[Any], Any] | None) -> None:
        self._redact = redact
        self._last_shown = ("", "")
        self._names: dict[str, str] = {}

    def json(self, value: Any) -> str:
        return self.written(value if self._redact is None else self._redact(value))

    def written(self, redacted: Any) -> str:
        text = encode(redacted)
        if len(text) > MAX_VALUE:
            return f'"[too long to record: {len(text)} bytes sha256:{sha256(text).hexdigest()[:8]}]"'
        return text.decode()

    def shown(self, name: str) -> str:
        """Ids and names come from outside too: a model can put a secret there as well as anywhere."""
        if self._redact is None:
            return name
        last = self._last_shown  # the records of one call follow each other
        if last[0] is not name:
            self._last_shown = last = (name, str(self._redact(name)))
        return last[1]

    def name(self, tool: str) -> str:
        """A tool's name, shown and quoted: there are few, and they come again and again."""
        try:
            return self._names[tool]
        except KeyError:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[tool] = name = quoted(tool if self._redact is None else str(self._redact(tool)))
            return name

    def short(self, text: str) -> str:
        text = self.shown(text)  # first: half a secret would not be known any more
        return self.written(text if len(text) <= _ERROR_MAX else text[:_ERROR_MAX] + "…")
