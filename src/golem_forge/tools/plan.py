"""Plan: what one call is about to do, resolved and held open, before anybody is asked.

A tool that touches files, programs or hosts plans first: it resolves its targets, states its effects, computes the
diff, and hands back `run`, which does exactly that and nothing else. Judging and asking happen between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from golem_forge.core.effects import Effect


@dataclass(slots=True, kw_only=True)
class Plan:
    run: Callable[[], Any]
    """Does what was planned; sync (runs off the event loop) or returning an awaitable."""
    effects: tuple[Effect, ...] | None = None
    """None: this tool does not say what it touches. An empty tuple: nothing at all."""
    diff: str = ""
    """Unified diff over virtual paths, computed from the bytes that `run` will write."""
    command: Any = None
    """For tools that run shell text: its analysis (`policy.facts.CommandFacts`), for rules about commands."""
    payload: str = ""
    """The literal text that matters (a command); empty: the arguments are the payload."""
    fingerprint_args: dict[str, Any] | None = None
    """Arguments without presentation and in normal form, where they differ from the validated ones."""
    targets: tuple[str, ...] = ()
    """Further fingerprint targets beside the effects', e.g. `cwd /srv/app`."""
    read_only: bool | None = None
    """Overrides the tool's own place at the gate for this one call."""
    recheck: Callable[[], None] | None = None
    """After a wait: raises if a target is no longer the one that was judged."""
    close: Callable[[], None] | None = None
    """Releases held descriptors; called at least once, however the call ends."""
    unasked: str = ""
    """What to say where nobody can be asked: how a person may agree beforehand."""
    model_note: str = ""
    """What the model says about this call; shown as its words."""
    warnings: tuple[str, ...] = field(default=())

    def release(self) -> None:
        if self.close is not None:
            self.close()
