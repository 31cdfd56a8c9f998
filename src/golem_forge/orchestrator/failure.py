"""What a caller reads when a tool's own code raised: the exception's type and its words, bounded."""

from __future__ import annotations

from typing import Final

_MAX_CHARS: Final = 2000


def failure_text(error: BaseException) -> str:
    try:
        words = str(error)
    except Exception:  # an exception whose __str__ raises is still only one failed call
        words = ""
    kind = type(error).__name__
    if len(words) > _MAX_CHARS:
        words = f"{words[: _MAX_CHARS // 2]} … {words[-_MAX_CHARS // 2 :]}"
    return f"{kind}: {words}" if words else kind
