"""One turn: a person's input, with the files that come with it, to the root worker's answer.

Takes a started session. Nothing raises: an input or a file that the worker does not take, a missing model and an
interrupt are RunResults, and no request was made then. `receive` keeps a file for an input to come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.options import must_be
from golem_forge.core.signal import InterruptSignal
from golem_forge.workers.answers import input_problem
from golem_forge.workers.attachments import Attached, Received, check_attachments, check_count
from golem_forge.workers.crew import WorkerRun
from golem_forge.workers.interrupting import Interrupted, unless_interrupted
from golem_forge.workers.loop import INTERRUPTED_TEXT
from golem_forge.workers.messages import Attachment
from golem_forge.workers.models.layer import ModelError
from golem_forge.workers.run_result import RunResult, RunStatus
from golem_forge.workers.starting import Started
from golem_forge.workers.suggesting import suggesting_in

Offered = Attached | Path | str | Mapping[str, Any]
"""A file that comes with an input; a mapping names one that `receive` has kept."""
_INPUTS_AHEAD: Final = 4
"""The files of so many inputs may be sent before the inputs that name them: in several windows somebody still types."""
EMPTY_INPUT: Final = (
    "the input is empty: give it as words, with --input or --file, or on standard input, in Python as the text of "
    "`run(text)` (a worker that needs none says `allow_empty_input: true`)"
)
NO_MODEL: Final = "no model: `/model provider:name` names one; meanwhile /tools lists what you can run by hand"


async def take_turn(
    session: Started, signal: InterruptSignal, text: str, attachments: Sequence[Offered] = ()
) -> RunResult:
    must_be(isinstance(text, str), "the input of a worker", "a text (JSON, where it has an input_schema)", text)
    run = session.run
    try:
        loop = await unless_interrupted(signal, session.crew.have_model(run))
        kept = _checked(session, text, attachments)
    except ConfigError as error:
        return _refused(run, RunStatus.INVALID_CONFIG, str(error))
    except ModelError as error:
        return _refused(run, RunStatus.MODEL_UNAVAILABLE, error.message)
    except Interrupted as stopped:
        return RunResult(success=True, status=stopped.status, response=INTERRUPTED_TEXT, worker=run.worker.name)
    if loop is None:
        return _refused(run, RunStatus.MODEL_UNAVAILABLE, NO_MODEL)
    message: dict[str, Any] = {"role": "user", "content": text}
    if kept:
        message["attachments"] = [{"name": each.name, "size": each.size} for each in kept]
    loop.dialogue.so_far = ""
    run.station.emit("message", {"message": message})
    _tell(run, "running", text)
    result = await loop.answer(text, kept)
    _tell(run, "complete" if result.status is RunStatus.COMPLETED else "error", result.error or result.status.value)
    if result.error:
        run.station.emit("status", {"type": "error", "message": result.error, "code": result.status.value})
    elif run.user_tools is not None and result.status is RunStatus.COMPLETED:
        await suggesting_in(session.tree).after_turn(run.station)
    return result


def receive(session: Started, name: str, data: bytes) -> Received:
    """Raises AttachmentRefused if this worker takes no such file."""
    policy = session.run.worker.attachment_policy
    check_attachments((Attached.of_bytes(name, data),), policy)
    return session.crew.attachments.receive(name, data, _INPUTS_AHEAD * policy.max_total_bytes)


def _checked(session: Started, text: str, attachments: Sequence[Offered]) -> tuple[Attachment, ...]:
    """Before any request: ConfigError for an input or a file that this worker does not take."""
    worker, loop, store = session.run.worker, session.run.loop, session.crew.attachments
    if not text.strip() and not worker.allow_empty_input:
        raise ConfigError(EMPTY_INPUT)
    if worker.input_schema is not None and (problem := input_problem(text, worker.input_schema)):
        raise ConfigError(problem)
    check_count(len(attachments), worker.attachment_policy)
    given = tuple(_attached(session, each) for each in attachments)
    check_attachments(given, worker.attachment_policy)
    if loop is None:
        return ()
    return tuple(store.keep(each, loop.dialogue.model) for each in given)


def _attached(session: Started, each: Offered) -> Attached:
    if isinstance(each, Mapping):
        return session.crew.attachments.offered(each)
    return each if isinstance(each, Attached) else Attached.of_file(Path(each))


def _refused(run: WorkerRun, status: RunStatus, problem: str) -> RunResult:
    run.station.emit("status", {"type": "error", "message": problem, "code": status.value})
    return RunResult(success=False, status=status, error=problem, worker=run.worker.name)


def _tell(run: WorkerRun, status: str, task: str) -> None:
    run.station.emit(
        "workerUpdate",
        {
            "workerId": run.station.id,
            "name": run.worker.name,
            "task": task.strip().splitlines()[0][:200] if task.strip() else "",
            "status": status,
            "depth": run.station.depth,
            "model": run.model_name,
        },
    )
