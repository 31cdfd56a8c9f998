"""Which typed lines hold a secret and are therefore not kept in the history file.

A line does when it gives a value to a tool's field that is `secret` or has such a part, or to an option named like a
credential, or when the session's redaction takes a known secret out of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.core.ids import new_id
from golem_forge.events.bus import EventBus
from golem_forge.events.credential_names import NOT, credential
from golem_forge.workers.slash.tokens import CommandError, tokenize

_OPTION: Final = re.compile(r"(--?)([A-Za-z][\w-]*)")
_TAKEN_OUT: Final = re.compile(r"\[secret [^\]]*\]|\[redacted \d+ chars")


def holds_secret(line: str, tools: Mapping[str, Sequence[Mapping[str, Any]]], bus: EventBus) -> bool:
    if line.startswith("/"):
        secret = {_spelled(str(field["name"])) for fields in tools.values() for field in fields if _is_secret(field)}
        initials = {name[:1] for name in secret}
        for dashes, option in _options(line):
            letters = initials & set(option.lower()) if dashes == "-" else ()  # `-fp 1` gives the 1 to p
            if letters or _spelled(option) in secret or credential(option) != NOT:
                return True
    shown = bus.make_event("command", {"requestId": new_id(), "text": line}).wire.get("text")
    return len(_TAKEN_OUT.findall(str(shown))) > len(_TAKEN_OUT.findall(line))


def _is_secret(field: Mapping[str, Any]) -> bool:
    """Whether it is one, is named like one, or has such a part."""
    parts = [*(field.get("fields") or ()), *(field.get("variants") or ()), field.get("item")]
    named = field.get("type") == "secret" or credential(str(field.get("name", ""))) != NOT
    return named or any(_is_secret(part) for part in parts if isinstance(part, Mapping))


def _spelled(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _options(line: str) -> list[tuple[str, str]]:
    """(dashes, name) as the command will read them, quotes and all; of a line that cannot be read, all that look so."""
    try:
        words = [token.text for token in tokenize(line, 1)]
    except CommandError:
        words = line.split()
    return [(found[1], found[2]) for word in words if (found := _OPTION.match(word))]
