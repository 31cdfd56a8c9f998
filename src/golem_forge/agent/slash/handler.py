"""SlashCommands: hears what UIs ask for (`command`, `manualToolInvoke`) and does it, each in a task of its own.

What a command says is a `status` event with code `command`, of type `info` or `error`. Nothing a command does raises:
what goes wrong is told to the person. A runtime has one from `initialize` on; one that is made later for the same bus
takes its place until it is closed, so that nothing is done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS
from golem_forge.agent.slash.invocation import (
    Invocation,
    RecentDecisions,
    SlashHost,
    find_prompt,
    only_for_models,
    prompts_of,
    run_prompt,
    run_tool,
)
from golem_forge.agent.slash.parser import (
    Classified,
    CommandError,
    callable_names,
    classify_command,
    parse_command,
    shell_command,
    unknown_name,
)
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.errors import ConfigError, ForgeError, error_name
from golem_forge.core.ids import is_id
from golem_forge.core.text import closest_match, escape_control_chars
from golem_forge.events.serialization import Event

COMMAND_CODE: Final = "command"
_ABOUT_TOOLS: Final = frozenset({"tool", "t", "tools", "help"})
"""Built-ins that a tool's code, edited meanwhile, matters to."""
_MOST_AT_ONCE: Final = 100
_MOST_SAID: Final = 100_000
_NO_SHELL: Final = "This worker has no tool exec_command, so ! runs nothing. Add `exec` to its toolsets."
_log = logging.getLogger(__name__)


class SlashCommands:
    def __init__(self, host: SlashHost, *, leave: Callable[[], None] | None = None) -> None:
        """`host`: a WorkerRuntime that is started, else RuntimeError. `leave` is what `/exit` does; without it what it
        did before."""
        _ = host.path
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()
        self._forget: list[Callable[[], None]] = []
        self._closed = False
        self._before = before = host.bus.commands
        self._decisions = RecentDecisions(host.bus)
        self._leave: Callable[[], None] = lambda: None
        if before is not None:
            before.pause()
        if isinstance(before, SlashCommands):
            self._decisions.take_over(before._decisions)
            self._leave = before._leave
        self._leave = leave or self._leave
        host.bus.commands = self
        self.resume()

    def resume(self) -> None:
        if self._closed:
            return
        bus = self._host.bus
        self._forget = [
            bus.on("command", lambda event: self._start(self.run(str(event.wire["text"])))),
            bus.on("manualToolInvoke", lambda event: self._start(self._invoke(event))),
        ]

    def pause(self) -> None:
        while self._forget:
            self._forget.pop()()

    async def run(self, text: str) -> None:
        """Runs one typed line to its end."""
        try:
            said = await self._execute(text)
        except (CommandError, ConfigError) as error:
            self._say("error", str(error))
        except ForgeError as error:
            self._say("error", error.message)
        except Exception as error:  # a command's own mistake must not end the session
            _log.exception("a command failed")
            self._say("error", f"The command failed ({error_name(error)}).")
        else:
            if said:
                self._say("info", said)

    async def settled(self) -> None:
        """Waits until no command runs."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def aclose(self) -> None:
        """Stops listening and ends running commands."""
        self.pause()
        self._closed = True
        self._decisions.close()
        if self._host.bus.commands is self:
            self._host.bus.commands = self._before
            if self._before is not None:
                self._before.resume()
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _execute(self, text: str) -> str:
        parsed = parse_command(text)
        if parsed is None:
            raise CommandError("That is not a command: write / and a name; /help lists them")
        if parsed.name.lower() not in BUILT_IN_COMMANDS or parsed.name.lower() in _ABOUT_TOOLS:
            await self._host.refresh()
        catalog = self._host.path.catalog
        kind = classify_command(parsed, [*catalog, *catalog.hidden_tools()])
        if kind.type == "unknown" and shell_command(text):
            raise CommandError(_NO_SHELL)
        if kind.type == "builtin" or parsed.name.lower() in BUILT_IN_COMMANDS:
            call = Invocation(host=self._host, parsed=parsed, decisions=self._decisions, leave=self._leave)
            return await BUILT_IN_COMMANDS[parsed.name.lower()].run(call)
        prompt = find_prompt(self._host, parsed.name)
        if prompt is None and kind.type == "unknown" and kind.name not in catalog.aliases():
            await self._host.path.wait_for_tool(kind.name, Caller.HUMAN)
            prompt = find_prompt(self._host, parsed.name)
            kind = classify_command(parsed, [*catalog, *catalog.hidden_tools()])
        if prompt is not None:  # a tool of that name: /tool NAME
            return await run_prompt(self._host, prompt, parsed.tokens)
        if kind.type == "unknown" and kind.name not in catalog.aliases():
            known = [*BUILT_IN_COMMANDS, *callable_names(catalog), *prompts_of(self._host)]
            raise CommandError(only_for_models(catalog, kind.name) or _unknown_command(kind, known))
        return "" if await run_tool(self._host, kind.name, parsed.tokens) else "Nothing was run."

    async def _invoke(self, event: Event) -> None:
        """A form was sent, or a UI's button pressed. What is wrong with it, its result says."""
        wire = event.wire
        request_id = wire.get("requestId")
        if is_id(request_id) and not self._is_first(request_id):
            return
        try:
            await self._host.refresh()
        except ForgeError as error:
            self._say("error", error.message)
            return
        call = ToolCall(str(wire["toolName"]), wire["args"], Caller.HUMAN)
        if is_id(request_id):
            call.id = request_id  # whoever sent the form knows its call by it
        await self._host.path.call(call)

    def _is_first(self, request_id: str) -> bool:
        """Whether this request id is new. A request that is sent twice, for example after a lost connection or to a
        resumed session, runs once; and it may not take the id of a model's call, because both would share one record.
        """
        known = self._host.call_ids
        if request_id in known:
            return False
        known.add(request_id)
        return True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= _MOST_AT_ONCE:
            work.close()
            self._say("error", f"{_MOST_AT_ONCE} commands run already; wait for one to end.")
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a command failed: %s", type(error).__name__)

    def _say(self, type_: str, text: str) -> None:
        if len(text) > _MOST_SAID:
            text = f"{text[:_MOST_SAID]}\n… and {len(text) - _MOST_SAID} more characters"
        self._host.bus.emit("status", {"type": type_, "message": text, "code": COMMAND_CODE}, self._host.id)


def _unknown_command(kind: Classified, known: list[str]) -> str:
    name = unknown_name(kind.name)
    close = closest_match(name.rstrip("…"), known)
    hint = f" (did you mean '/{close}'?)" if close else ""
    return f"Unknown command '/{escape_control_chars(name)}'{hint}"
