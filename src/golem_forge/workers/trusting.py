"""Asking a person to trust a program: one card with the text of everything that trust covers, or its diff.

Untrusted, nothing of a program's code is imported; where it needs code and nobody can be asked, it does not start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golem_forge.config.program import Program
from golem_forge.config.trust import TrustSnapshot, TrustStore
from golem_forge.core.canonical import digest
from golem_forge.core.visible import visible
from golem_forge.events.questions import RuntimeUI


class NotTrusted(Exception):
    """The program needs code of its own, and nobody has trusted it."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            "this program brings its own code and is not trusted; read it, then run `forge trust` in its directory"
        )
        self.root = root


async def ask_for_trust(
    ui: RuntimeUI, trust: TrustStore, program: Program, snapshot: TrustSnapshot | None = None
) -> bool:
    """True: trust was given, for exactly what was shown: the `snapshot`, or the files as they are now."""
    snapshot = snapshot or trust.snapshot(program.root)
    changes = trust.changes(program.root, snapshot)
    payload = changes or "\n\n".join(f"── {name}\n{text}" for name, text in snapshot.files.items())
    request: dict[str, Any] = {
        "type": "trust",
        "description": f"Trust the program in {visible(program.root.name)}?",
        "tool": "trust",
        "args": {"files": sorted(snapshot.files)},
        "payload": visible(payload),
        "effects": ["use its tools, its approvals and its settings"],
        "risk": "high",
        "riskReasons": [],
        "why": program.notice or "it brings code of its own",
        "choices": [],
        "fingerprint": snapshot.digest,
        "argsKey": digest(snapshot.digest),
        "previouslyDenied": 0,
        "warnings": [],
        "workerPath": [],
    }
    answer = await ui.request_approval(request)
    if not answer["approved"]:
        return False
    trust.give(program.root, snapshot)
    return True
