"""A worker from start to exit code: who shows it, the signals that stop it, one answer or a conversation."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from golem_forge.cli.run.uis import adapter_for
from golem_forge.cli.run.words import Asked
from golem_forge.config.home import forge_home
from golem_forge.config.program import program_root
from golem_forge.core.ending_signals import ending_signals
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.homely import homely
from golem_forge.core.visible import visible
from golem_forge.events.finding import find_session
from golem_forge.events.questions import InputUnavailable
from golem_forge.ui import exit_codes
from golem_forge.ui.exit_codes import exit_code, exit_code_for, status_for
from golem_forge.ui.session_ui import SessionUI
from golem_forge.workers.conversation import TERMINATED, Conversation, end_conversation
from golem_forge.workers.run_result import RunResult
from golem_forge.workers.runtime import WorkerRuntime
from golem_forge.workers.slash.handler import SlashCommands
from golem_forge.workers.trusting import NotTrusted

_TWICE_WITHIN_S: Final = 2.0
_ID_SHOWN: Final = 12

_REFUSALS: Final = (ConfigError, NotTrusted, ForgeError)
"""What ends a start before anything ran."""


async def start(asked: Asked) -> int:
    try:
        if asked.resume:
            _name_resumed(asked)
        if not asked.headless:
            from golem_forge.cli.run.looking import check_start

            check_start(asked)  # what is wrong with the files is said before a prompt is drawn
        return await _run(asked)
    except _REFUSALS as error:
        for problem in _problems(error):
            print(f"forge: {visible(problem)}", file=sys.stderr)
        return exit_code_for(error)


def _name_resumed(asked: Asked) -> None:
    """Which session it is, and where: it goes on in its own directory, whatever this one is."""
    try:
        found = find_session(forge_home().path, asked.resume, root=program_root(asked.directory))
    except ForgeError:
        return  # the start refuses, in the form that was asked for
    asked.resume = found.id
    if found.root and asked.trace != "quiet":
        print(f"resuming {found.id[:_ID_SHOWN]} in {visible(homely(found.root))}", file=sys.stderr)


async def _run(asked: Asked) -> int:
    runtime = WorkerRuntime(
        asked.worker,
        directory=asked.directory,
        model=asked.model,
        approval_mode=asked.approval,
        overrides=asked.overrides,
        resume=asked.resume,
        needs_model=asked.headless or asked.input is not None,
        default_mode="single" if asked.headless or (asked.input is not None and not asked.on_page) else "chat",
    )
    adapter = adapter_for(asked, runtime)
    signals = _Signals(runtime, adapter)
    signals.install()
    try:
        await adapter.initialize()
        try:
            await runtime.initialize()
        except _REFUSALS as error:
            if not asked.json:
                raise
            return _refused_in_json(runtime, adapter, error)
        return await _drive(asked, runtime, adapter, signals)
    finally:
        await runtime.aclose()
        await adapter.shutdown()


async def _drive(asked: Asked, runtime: WorkerRuntime, adapter: SessionUI, signals: _Signals) -> int:
    if asked.headless or runtime.mode == "single":
        text = asked.input
        if text is None and not asked.headless:
            try:
                text = await _first_input(runtime, adapter)
            except InputUnavailable:  # the person left instead
                end_conversation(runtime, None)
                return _left(runtime, adapter, None)
        result = await runtime.run(text or "", asked.attach)
        adapter.finished(result)
        signals.nothing_runs()
        await adapter.stay(result)
        return exit_code(result)
    conversation = Conversation(runtime)
    watcher = asyncio.ensure_future(_leave_when_asked(adapter, conversation))
    try:
        last = await conversation.run(asked.input or "", asked.attach)
    finally:
        watcher.cancel()
    end_conversation(runtime, last)
    return _left(runtime, adapter, last)


async def _first_input(runtime: WorkerRuntime, adapter: SessionUI) -> str:
    """Of a worker that answers once; slash commands work until then."""
    commands = SlashCommands(runtime, leave=lambda: adapter.request_exit(0))
    try:
        return (await runtime.ui.get_user_input("> ", cancel=adapter.exit_requested)).content
    finally:
        await commands.aclose()


async def _leave_when_asked(adapter: SessionUI, conversation: Conversation) -> None:
    await adapter.exit_requested.wait()
    conversation.leave()


def _left(runtime: WorkerRuntime, adapter: SessionUI, last: RunResult | None) -> int:
    """How a conversation ended is how the person left it, not what its last answer was."""
    if adapter.exit_code or not runtime.signal or last is None:
        return adapter.exit_code
    return exit_code(last)


class _Signals:
    """SIGINT interrupts; a second one within two seconds ends the process. SIGTERM ends it in an orderly way, and so
    does a terminal that is closed, unless somebody (`nohup`) said that it shall not."""

    def __init__(self, runtime: WorkerRuntime, adapter: SessionUI) -> None:
        self._runtime = runtime
        self._adapter = adapter
        self._last = -_TWICE_WITHIN_S

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self._terminate)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)

    def nothing_runs(self) -> None:
        """From now on an interrupt means that the person leaves."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._adapter.request_exit)

    def _interrupt(self) -> None:
        now = time.monotonic()
        again, self._last = now - self._last < _TWICE_WITHIN_S, now
        self._runtime.interrupt()
        if again:
            self._adapter.request_exit(exit_codes.INTERRUPTED)

    def _terminate(self) -> None:
        self._runtime.interrupt(TERMINATED)
        self._adapter.request_exit(exit_codes.TERMINATED)


def _refused_in_json(runtime: WorkerRuntime, adapter: SessionUI, error: Exception) -> int:
    """Whoever reads events learns from them, too, that there will be no session."""
    status, problem = status_for(error), "\n".join(_problems(error))
    runtime.bus.emit("status", {"type": "error", "message": problem, "code": status.value})
    adapter.finished(RunResult(success=False, status=status, error=problem))
    return exit_code_for(error)


def _problems(error: Exception) -> Sequence[str]:
    return error.problems if isinstance(error, ConfigError) else (str(error),)
