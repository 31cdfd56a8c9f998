"""What a caller reads when a tool's own code raised: the exception's type and its words."""

from __future__ import annotations

from typing import Final

from golem_forge.core.errors import error_name

_MOST_READ: Final = 1 << 20
_MOST_SHOWN: Final = 2000


def failure_text(error: BaseException) -> str:
    """Not yet cut: what must be taken out has to be found whole first."""
    kind = error_name(error)[:200]
    try:
        words = str(error)[:_MOST_READ]
    except BaseException:  # an exception that cannot be read is still only one failed call
        words = "(its words cannot be read)"
    return f"{kind}: {words}" if words else kind


def shortened(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= _MOST_SHOWN:
        return text
    return f"{text[: _MOST_SHOWN // 2]} … {text[-_MOST_SHOWN // 2 :]}"
