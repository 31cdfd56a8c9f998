"""Stub of undo: what the screens call; the engine has the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golem_forge.core.changes import PathChange
from golem_forge.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoStep:
    path: str
    action: str
    """`restore`, `delete`, `create`, `mode` or `ref`."""
    selected: bool = True
    why: str = ""
    """Why it is not preselected, or cannot be taken back."""
    diff: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPreview:
    steps: tuple[UndoStep, ...] = ()
    lost: tuple[Any, ...] = ()
    calls: tuple[str, ...] = ()


def preview(
    home: Path,
    sandbox: Any,
    session: str,
    *,
    turn: int | None = None,
    call: str = "",
    paths: Sequence[str] = (),
    also: Sequence[str] = (),
    redo: bool = False,
) -> UndoPreview:
    return UndoPreview()


def change_diff(home: Path, change: PathChange) -> str:
    return ""
