"""The rules that come with Forge: three ways to destroy a machine that no mode and no approval lets through.

A person can drop one by id with `builtin_off` in their own rules.yaml; then such a command asks as a danger does.
"""

from __future__ import annotations

from typing import Final

from golem_forge.core.verdict import Verdict
from golem_forge.policy.rules.model import Kind, Origin, Rule

_REASONS: Final = {
    "wipe_root": "this would delete the system or a home directory",
    "wipe_device": "this would overwrite a device",
    "fork_bomb": "this would start processes without end",
}
BUILTIN_IDS: Final = frozenset(_REASONS)


def builtin_rules() -> tuple[Rule, ...]:
    return tuple(
        Rule(
            kind=Kind.COMMAND,
            verdict=Verdict.BLOCKED,
            id=id_,
            origin=Origin.BUILTIN,
            written={"command": id_, "verdict": Verdict.BLOCKED.value, "reason": reason},
            reason=reason,
            danger=id_,
        )
        for id_, reason in _REASONS.items()
    )
