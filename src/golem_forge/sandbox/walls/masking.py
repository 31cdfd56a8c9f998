"""Which paths nobody may read without being asked for that very call: secrets, and what read rules hold back.

One answer for walls (which mask these paths) and for tools that walk trees (which skip them).
"""

from __future__ import annotations

from collections.abc import Sequence

from golem_forge.core.effects import Verb
from golem_forge.core.verdict import Verdict
from golem_forge.sandbox.walls.settings import PathRule


def is_masked(virtual: str, *, secret: bool, rules: Sequence[PathRule]) -> bool:
    """`secret`: the path has the mark SECRET_PATH. A held-back path stays so, whatever another rule accepts."""
    said = [rule for rule in rules if Verb.READ in rule.access and rule.matches(virtual)]
    if any(rule.verdict is not Verdict.PRE_APPROVED for rule in said):
        return True
    return secret and not any(rule.accepts_secret for rule in said)


def is_read_only(virtual: str, rules: Sequence[PathRule]) -> bool:
    """A write or delete rule of `ask` or `blocked` holds inside walls as a read-only path."""
    return any(
        rule.verdict is not Verdict.PRE_APPROVED and rule.matches(virtual)
        for rule in rules
        if Verb.WRITE in rule.access or Verb.DELETE in rule.access
    )
