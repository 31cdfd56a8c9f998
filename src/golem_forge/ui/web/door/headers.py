"""The headers that every answer of this server carries, refusals and errors included.

Threat: text of a model or a tool that gets into the page as markup all the same finds nothing it may load, run or send
to; no other page can frame ours, read our answers or hold a handle to our window; nothing is kept in a cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_OURS: Final = frozenset(name for name, _ in HEADERS) | {b"server"}


def with_headers(given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Each of ours once, whatever the answer says about itself."""
    return [*((name, value) for name, value in given if name.lower() not in _OURS), *HEADERS]
