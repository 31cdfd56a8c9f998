"""The chain: each journal line ends with the SHA-256 of the hash before it and of its own body.

    {"n":7,"ts":"…","type":"note",…,"hash":"<64 hex>"}        hash = sha256(previous 64 hex digits + body)

The body is every byte before `,"hash":"`. A line that is changed, cut out, inserted or moved breaks the chain at
its number. The chain has no key: someone who rewrites the whole file can rewrite every hash, so the last hash is also
kept outside it (`anchors.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

START: Final = "0" * 64
"""Stands for the hash before the first line."""
_SEAL: Final = b',"hash":"'
_TAIL: Final = len(_SEAL) + 64 + len(b'"}')


def seal(records: Iterable[str], lines: int, hash: str) -> tuple[bytes, int, str]:
    """Finished lines for records (JSON without braces), following line number `lines` with hash `hash`.

    Gives their bytes, and the number and hash of the last of them.
    """
    written = []
    for record in records:
        lines += 1
        body = f'{{"n":{lines},{record}'
        hash = sha256(f"{hash}{body}".encode()).hexdigest()
        written.append(f'{body},"hash":"{hash}"}}\n')
    return "".join(written).encode(), lines, hash


def unseal(line: bytes) -> tuple[bytes, str] | None:
    """(body, hash) of a line without its newline; None when it does not end in a hash."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    if len(tail) != _TAIL or not tail.startswith(_SEAL) or not tail.endswith(b'"}'):
        return None
    return body, tail[len(_SEAL) : -2].decode("ascii", "replace")


def next_hash(previous: str, body: bytes) -> str:
    return sha256(previous.encode() + body).hexdigest()
