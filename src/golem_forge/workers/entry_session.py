"""A session for one call of a person's, in the place of the program's entry worker, else of the built-in one.

No model is opened and nothing is asked for but what the call itself asks. Refuses with ConfigError, and with NotTrusted
where that worker needs code of its own which nobody trusts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from golem_forge.config.program import Program
from golem_forge.config.run_settings import MAIN_WORKER
from golem_forge.policy.asking import ApprovalCallback
from golem_forge.workers.session import Session, open_session
from golem_forge.workers.tree import SessionTree, TreeOptions, home_of, open_tree, read_program
from golem_forge.workers.trust_cover import trust_store


@asynccontextmanager
async def entry_session(
    directory: Path | str = ".",
    *,
    worker: Path | str | None = None,
    approval: str | None = None,
    approval_callback: ApprovalCallback | None = None,
) -> AsyncIterator[Session]:
    """Without a callback nobody is asked: it is `auto_deny`. `worker`: another one than the program's entry."""
    home = home_of(None)
    if worker is None and not has_entry(read_program(directory, home, trust_store(home))):
        async with open_session(directory, approval=approval, approval_callback=approval_callback) as session:
            yield session
        return
    tree = open_tree(directory, TreeOptions(home=home, approval=approval, approval_callback=approval_callback))
    async with _placed(tree, worker) as session:
        yield session


def has_entry(program: Program) -> bool:
    """Whether calls here are made in the place of a worker of the program; else it is the built-in one."""
    return "entry" in program.run.origins or (program.root / MAIN_WORKER).exists()


@asynccontextmanager
async def _placed(tree: SessionTree, worker: Path | str | None) -> AsyncIterator[Session]:
    from golem_forge.workers.attachments import AttachmentStore
    from golem_forge.workers.budget import Budget
    from golem_forge.workers.crew import Crew
    from golem_forge.workers.delegation import delegation_tools
    from golem_forge.workers.models.usage import Meter
    from golem_forge.workers.roster import load_roster
    from golem_forge.workers.trusting import NotTrusted

    try:
        roster = load_roster(tree.program, worker, trusted_with=tree.trust.trusted_with)
        if roster.needs_code and not roster.trusted:
            raise NotTrusted(tree.program.root)
        crew = Crew(
            tree=tree,
            roster=roster,
            attachments=AttachmentStore(tree.home.path, tree.id),
            meter=Meter(),
            budget=Budget(tree.program.run.budget),
            delegations=delegation_tools,
        )
        run = await crew.place(roster.root)
    except BaseException:
        tree.abandon()
        raise
    notice = tree.program.notice_with(roster.unused)
    notices = ([notice] if notice else []) + [*roster.warnings, *run.notices]
    try:
        yield Session(tree, run.station, tuple(notices), run.user_tools, run.servers)
    finally:
        await crew.dismiss(run)
        await tree.aclose()
