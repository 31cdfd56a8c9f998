"""A session for one call of a person's, in the place of the program's entry worker, else of the built-in one.

No model is opened and nothing is asked for but what the call itself asks. Refuses with ConfigError, and with NotTrusted
where that worker needs code of its own which nobody trusts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.policy.asking import ApprovalCallback
from golem_forge.workers.session import Session, session_of
from golem_forge.workers.session_plan import SessionPlan, plan_call
from golem_forge.workers.tree import TreeOptions, open_tree

if TYPE_CHECKING:
    from golem_forge.workers.crew import Crew


@asynccontextmanager
async def entry_session(
    directory: Path | str = ".",
    *,
    worker: Path | str | None = None,
    approval: str | None = None,
    approval_callback: ApprovalCallback | None = None,
) -> AsyncIterator[Session]:
    """Without a callback nobody is asked: it is `auto_deny`. `worker`: another one than the program's entry."""
    options = TreeOptions(approval=approval, approval_callback=approval_callback)
    plan = plan_call(directory, options.wanted, worker)
    if plan.roster is None:
        async with session_of(plan, options) as session:
            yield session
        return
    if plan.waits_for_trust:
        from golem_forge.workers.trusting import NotTrusted

        raise NotTrusted(plan.program.root)
    crew = crew_of(plan, options)
    try:
        run = await crew.place(plan.worker)
    except BaseException:
        crew.tree.abandon()
        raise
    notices = (*plan.notices, *run.notices)
    try:
        yield Session(crew.tree, run.station, notices, run.user_tools, run.servers)
    finally:
        await crew.dismiss(run)
        await crew.tree.aclose()


def crew_of(plan: SessionPlan, options: TreeOptions) -> Crew:
    """Opens a plan of a program's worker, which takes its place next; without a model."""
    from golem_forge.workers.attachments import AttachmentStore
    from golem_forge.workers.budget import Budget
    from golem_forge.workers.crew import Crew
    from golem_forge.workers.delegation import delegation_tools
    from golem_forge.workers.models.usage import Meter

    assert plan.roster is not None
    tree = open_tree(plan, options)
    return Crew(
        tree=tree,
        roster=plan.roster,
        attachments=AttachmentStore(tree.home.path, tree.id),
        meter=Meter(),
        budget=Budget(tree.program.run.budget),
        delegations=delegation_tools,
    )
