"""Arguments that arrived as JSON text, made fit for the journal: as the value they hold, so that it can be redacted.

Threat: in text that is not valid JSON a credential cannot be told from anything else, so only its length and digest
are kept.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

_MAX_CHARS = 1024 * 1024


def readable_args(text: Any) -> Any:
    """Text as the value it holds; anything else as it is."""
    if not isinstance(text, str):
        return text
    if len(text) <= _MAX_CHARS:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[unreadable {len(text)} chars sha256:{digest[:8]}]"
