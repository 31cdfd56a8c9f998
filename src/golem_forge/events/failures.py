"""A failure for the log: its type and where it came from; what it says only where that may be shown.

The text is short whatever the error holds.
"""

from __future__ import annotations

import traceback
from typing import Final

_MOST_FRAMES: Final = 20
_MOST_SAID: Final = 500


def described(error: BaseException, *, quoting: bool) -> str:
    """`quoting`: whether the error's own words may be shown."""
    places = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]))
    said = _words(error) if quoting else ""
    return f"{type(error).__name__}{said and ': ' + said}\n{places}".rstrip()


def _words(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        return "(it cannot be shown)"
    return said if len(said) <= _MOST_SAID else f"({len(said)} characters)"
