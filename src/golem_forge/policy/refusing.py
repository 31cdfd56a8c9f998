"""Tools that can only be refused: under `auto_deny` there is no use in offering them to a model.

Says yes only where no arguments could get a call through. A model that names such a tool all the same is answered by
the path, like everybody.
"""

from __future__ import annotations

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.verdict import Verdict
from golem_forge.policy.base import configured_base
from golem_forge.policy.judge import Judge
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import SourceKind, Tool


def only_refuses(judge: Judge, tool: Tool, sandbox: Sandbox | None) -> bool:
    if tool.needs_approval == Verdict.BLOCKED.value:
        return True
    if any(said.verdict is Verdict.BLOCKED for said in judge.blocks.named(tool.name)):
        return True
    if judge.mode is not ApprovalMode.AUTO_DENY or (judge.rules is not None and not judge.rules.silent()):
        return False  # a rule may let some of its calls through
    own = tool.needs_approval
    if own is not None:
        return own is True or own in (Verdict.ASK, Verdict.BLOCKED)
    if tool.source is not SourceKind.NATIVE:
        return configured_base(tool.name, judge.blocks).verdict is not Verdict.PRE_APPROVED
    if tool.always is None or sandbox is None:
        return False
    return all(zone.verdict(tool.always) is not Verdict.PRE_APPROVED for zone in sandbox.zones.values())
