"""Regular expressions that are compiled at their first use.

Compiling one takes 0.1 to 0.5 ms. The modules behind a single `forge` command define about 200 and use a few of them.
"""

from __future__ import annotations

import re
from typing import Any, Final, overload

_COPIED: Final = (
    *("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"),
    *("flags", "groups", "groupindex"),
)


class _LazyPattern:
    """Stands for an `re.Pattern`; after the first use its methods are those of the compiled one."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._given_flags = flags

    def __getattr__(self, name: str) -> Any:
        if name not in _COPIED:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._given_flags)
        self.__dict__.update({each: getattr(compiled, each) for each in _COPIED})
        return self.__dict__[name]

    def __repr__(self) -> str:
        return f"regex({self.pattern!r})"


@overload
def regex(pattern: str, flags: int = 0) -> re.Pattern[str]: ...
@overload
def regex(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]: ...
def regex(pattern: str | bytes, flags: int = 0) -> Any:
    """Like `re.compile`, later. It is no `re.Pattern` for `isinstance`, and `re.sub(it, …)` does not take it."""
    return _LazyPattern(pattern, flags)
