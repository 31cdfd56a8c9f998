"""The `undo` block of config.yaml and forge.yaml: how much of what calls change is kept, and for how long."""

from __future__ import annotations

from typing import Final

from golem_forge.config.sandbox_block import size
from golem_forge.config.schema import Check
from golem_forge.config.store_block import duration
from golem_forge.core.lazy_dataclass import dataclass

UNDO_KEYS: Final[dict[str, Check]] = {"keep": duration, "max_disk": size, "max_file": size, "max_total": size}


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoSettings:
    keep: float = 30 * 86_400.0
    """Seconds for which a session's changes can be undone."""
    max_disk: int = 5 << 30
    """Bytes for all sessions; the oldest go first."""
    max_file: int = 32 << 20
    """Larger files are not kept."""
    max_total: int = 2 << 30
    """Bytes for one zone, at most a tenth of the free disk."""
