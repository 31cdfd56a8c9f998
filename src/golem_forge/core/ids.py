"""Random identifiers: 128 bits, never counters, so that an id from one session means nothing in another."""

from __future__ import annotations

import os
from typing import Final, TypeGuard

from golem_forge.core.regex import regex

_LENGTH: Final = 32
_SHAPE: Final = regex(r"[0-9a-f]{32}")
_BATCH: Final = 256
_pool: list[str] = []
"""Ids made in batches: one kernel call for each would cost more than the rest of a quick call's bookkeeping."""


def new_id() -> str:
    try:
        return _pool.pop()
    except IndexError:
        digits = os.urandom(_BATCH * _LENGTH // 2).hex()
        _pool.extend(digits[at : at + _LENGTH] for at in range(0, len(digits), _LENGTH))
        return _pool.pop()


def is_id(text: object) -> TypeGuard[str]:
    """Whether it is one that could have been made here: for ids that somebody else brings along."""
    return isinstance(text, str) and _SHAPE.fullmatch(text) is not None


os.register_at_fork(after_in_child=_pool.clear)  # parent and child must never hand out the same ids
