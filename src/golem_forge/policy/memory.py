"""What was answered in this session: approvals by fingerprint, and how often a call was denied.

Only approvals are kept. A denial is counted, never used as an answer: the next request asks again and says so.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

_MAX_GRANTS: Final = 10_000


class ApprovalMemory:
    def __init__(self) -> None:
        self._granted: dict[str, str] = {}
        self._denied: Counter[str] = Counter()

    def grant(self, fingerprint: str, what: str) -> None:
        self._granted[fingerprint] = what
        if len(self._granted) > _MAX_GRANTS:  # the oldest approval is the one to ask again
            del self._granted[next(iter(self._granted))]

    def granted(self, fingerprint: str) -> bool:
        return fingerprint in self._granted

    def grants(self) -> dict[str, str]:
        """Fingerprint → what was approved, oldest first."""
        return dict(self._granted)

    def revoke(self, fingerprint: str) -> bool:
        return self._granted.pop(fingerprint, None) is not None

    def deny(self, fingerprint: str) -> None:
        self._denied[fingerprint] += 1
        if len(self._denied) > _MAX_GRANTS:
            del self._denied[next(iter(self._denied))]

    def denials(self, fingerprint: str) -> int:
        return self._denied[fingerprint]

    def clear(self) -> None:
        self._granted.clear()
        self._denied.clear()
