"""What a person can do about a call of theirs that did not succeed: one sentence, or none where its error says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.core.effects import Mark
from golem_forge.core.verdict import Status

if TYPE_CHECKING:
    from golem_forge.core.call import Outcome
    from golem_forge.core.decision import Decision
    from golem_forge.workers.session import Session


def next_step(outcome: Outcome, session: Session) -> str:
    if outcome.status is Status.TOOL_NOT_FOUND:
        return _where_tools_are(outcome, session)
    if outcome.status is Status.INPUT_INVALID:
        return f"`forge tools show {outcome.tool}` lists its parameters."
    if (
        outcome.status is Status.APPROVAL_DENIED
        and outcome.decision
        and not outcome.decision.message.startswith("Denied")
        and not _is_about_trust(outcome.decision)  # no rule lifts that, and its text says what does
    ):
        return "run it on a terminal to be asked, or use --approval approve_all, or add a rule (`forge rules --help`)."
    if outcome.status is Status.POLICY_DENIED:
        return "`forge rules explain` shows which rule or zone decides."
    return ""


def _where_tools_are(outcome: Outcome, session: Session) -> str:
    from golem_forge.workers.session_plan import has_entry

    name = outcome.call.name
    if "run: forge mcp" in outcome.error:  # a server's tool that changed
        return ""
    if "MCP server" in outcome.error:
        return f"`forge mcp test {name.partition('__')[0]}` tries it and says more."
    tool = session.catalog.get(name)
    if tool is not None and tool.mode == "llm":
        return f"'{name}' is for models only; `@tool(mode=\"both\")` lets people call it too."
    if has_entry(session.program):
        return "`forge run --dry-run` shows the tools of this program's worker."
    return "`forge tools list` shows the tools there are."


def _is_about_trust(decision: Decision) -> bool:
    return any(source.id == Mark.DEFINITION_CHANGED for source in decision.sources)
