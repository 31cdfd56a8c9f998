"""The question that a person is asked once a directory: does Forge work on its own there, or ask before each change.

Asked where neither the command line nor a file says in which approval mode sessions run, nothing is remembered, the
walls are full and what is done can be undone. The answer is kept in remembered.yaml (`policy/rules/files.py`), and
revoked like every other that is remembered. Whoever does not answer is asked again in the next session.

Threat: a program or an editor that answers by itself. Only a UI that may trust code is asked, and what a program that
nobody trusts writes about the mode is no answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.run_result import RunInterrupted, unless_interrupted
from golem_forge.config.approval_modes import DEFAULT_MODE, ApprovalMode
from golem_forge.policy.rules.files import remember_mode, remembered_mode
from golem_forge.sandbox.walls.model import Level
from golem_forge.storage.home import ForgeHome

if TYPE_CHECKING:
    from golem_forge.agent.runtime import WorkerRuntime

DIRECTORY_QUESTION: Final[dict[str, Any]] = {
    "source": "Forge",
    "title": "How shall Forge work in this directory?",
    "message": "",
    "fields": [],
    "accept": "work on its own here; ask before anything leaves this directory or cannot be undone",
    "decline": "ask before each change",
}
_CHOICES: Final = {"accept": ApprovalMode.CONTAINED, "decline": ApprovalMode.INTERACTIVE}
_TERMINATED: Final = "terminated"


async def ask_directory_mode(runtime: WorkerRuntime) -> None:
    root, home, ui = runtime.program.root, runtime.home, runtime.ui
    written = runtime.program.mode().origin != DEFAULT_MODE or runtime.controller.mode is not ApprovalMode.INTERACTIVE
    if written or not ui.may_trust or is_answered(home, root):
        return
    try:
        report = await unless_interrupted(runtime.signal, runtime.walls.report())
        covered = await unless_interrupted(runtime.signal, runtime.walls.coverage())
        if report.level is not Level.FULL or covered.problem or not covered.zones:
            return
        question = ui.request_form(DIRECTORY_QUESTION, worker_id=runtime.id)
        chosen = _CHOICES.get((await unless_interrupted(runtime.signal, question))["action"])
    except RunInterrupted:
        if runtime.signal.reason != _TERMINATED:
            runtime.signal.reset()
        return
    if chosen is None:
        return
    remember_mode(home, root, chosen)
    runtime.rules.expire()
    if chosen is ApprovalMode.CONTAINED:
        runtime.switch_approval(chosen, "this directory, also for later sessions")


def is_answered(home: ForgeHome, root: Path) -> bool:
    return remembered_mode(home, root) is not None
