"""Random identifiers: 128 bits, never counters, so that an id from one session means nothing in another."""

from __future__ import annotations

import os


def new_id() -> str:
    return os.urandom(16).hex()
