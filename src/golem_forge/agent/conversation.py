"""Conversation: waits for input, answers, and repeats until the user leaves. After an interrupt the prompt returns.

Takes an initialized root WorkerRuntime with a UI attached; returns the RunResult of the last turn. Slash commands run
beside it. `leave` ends it from anywhere; `end_conversation` reports how it ended.

A UI whose client decides when a turn begins does without `run`: it calls `turn` for each input and `command` for each
slash command, and `aclose` at the end. An interrupt is settled in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.agent.root_worker import AttachmentInput
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.events.open_questions import COMMAND
from golem_forge.events.runtime_ui import InputUnavailable

PROMPT = "> "
NO_UI: Final = (
    "a conversation needs a UI to ask for input: give the runtime ui_adapter=… (one that attaches), or "
    "`await runtime.turn(text)` for each thing to say"
)
TERMINATED: Final = "terminated"
"""The reason of an interrupt after which there is no next prompt."""


class Conversation:
    def __init__(self, runtime: WorkerRuntime) -> None:
        """Must be called on the loop that runs it. Raises RuntimeError for a runtime that is not started, ValueError
        for a sub-worker's.
        """
        if not runtime.is_root():
            raise ValueError("a sub-worker (depth above 0) answers once: `await runtime.run(text)`")
        self._runtime = runtime
        self._left = asyncio.Event()
        self._commands = SlashCommands(runtime, leave=self.leave)
        self._busy = False
        self._settling: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._forget = runtime.signal.listen(lambda _: loop.call_soon_threadsafe(self._interrupted))

    def leave(self) -> None:
        self._left.set()

    @property
    def left(self) -> bool:
        return self._left.is_set()

    async def run(self, first: str = "", attachments: Sequence[AttachmentInput] = ()) -> RunResult | None:
        """`first`: what was said on the command line, with what was attached there.

        Raises RuntimeError where there never was a UI and nothing was said: nobody could say anything.
        """
        if not first and not self._runtime.ui.ever_attached:
            await self.aclose()
            raise RuntimeError(NO_UI)
        last: RunResult | None = None
        text = first
        walls = asyncio.ensure_future(self.tell_walls())
        # A UI may answer a prompt with a command, by its id: then the next prompt comes when that has run.
        answer = self._runtime.ui.answer_by_command
        unsubscribe = self._runtime.bus.on("command", lambda event: answer(str(event.wire.get("requestId"))))
        try:
            while not self._left.is_set():
                if not text:
                    try:
                        given = await self._runtime.ui.get_user_input(PROMPT, cancel=self._left)
                    except InputUnavailable as ended:
                        if ended.by != COMMAND:
                            raise
                        await self._commands.settled()
                        continue
                    text, attachments = given.content, _sent_before(given.attachments or ())
                    if not text and not attachments:
                        continue
                last = await self.turn(text, attachments)
                text, attachments = "", ()
        except InputUnavailable:
            pass
        finally:
            walls.cancel()
            unsubscribe()
            await self.aclose()
        return last

    async def aclose(self) -> None:
        """Ends the commands that still run."""
        self._forget()
        await self._commands.aclose()

    async def tell_walls(self) -> None:
        """Tests the walls and shows their notices while the person types."""
        runtime = self._runtime
        if "exec_command" in runtime.path.catalog and runtime.path.walls is not None:
            await runtime.path.walls.report()
            for notice in runtime.path.walls.notices:
                runtime.ui.show_status(type="warning", message=notice)

    async def command(self, text: str, by: str) -> None:
        """One slash command to its end; `by`: the UI in which it was typed. Afterwards the session is ready again."""
        self._runtime.bus.emit("command", {"text": text}, source=by)
        await self._commands.settled()
        if self._settling is not None:
            await self._settling

    async def turn(
        self, text: str, attachments: Sequence[AttachmentInput] = (), *, said: str | None = None
    ) -> RunResult:
        """One input, one answer; afterwards the session is ready again, also after an interrupt. `said`: as for
        `WorkerRuntime.turn`."""
        self._busy = True
        try:
            return await self._runtime.turn(text, attachments, said=said)
        finally:
            self._busy = False
            self._rearm()

    def _interrupted(self) -> None:
        """An interrupt at the prompt ends what a command runs; then the session is ready again."""
        if not self._busy:
            self._settling = asyncio.get_running_loop().create_task(self._settle())

    async def _settle(self) -> None:
        await self._commands.settled()
        if not self._busy:
            self._rearm()

    def _rearm(self) -> None:
        if self._runtime.signal.reason != TERMINATED:
            self._runtime.signal.reset()


def end_conversation(runtime: WorkerRuntime, last: RunResult | None) -> None:
    """The session ends with what stopped it; with `completed` where the person left, whatever the last answer was."""
    if not runtime.signal:
        runtime.end()
    elif runtime.signal.reason == TERMINATED:
        runtime.end(RunResult(success=True, status=RunStatus.TERMINATED))
    else:
        runtime.end(last)


def _sent_before(attachments: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    """A UI names what it sent. Threat: anything else would be taken for the path of a file of the host."""
    return tuple(each if isinstance(each, Mapping) else {} for each in attachments)
