"""`forge run` from start to exit code: the UI that shows the session, signals, one answer or a conversation.

`adapter_for` chooses terminal, page, both or headless. SIGINT interrupts, a second one within two seconds ends the
process; SIGTERM and a closed terminal end it in order. The completion sources (zone paths, models, sessions, rules,
servers, prompts) take the runtime and return a function for `create_event_cli_adapter`; if one raises, completion
offers nothing.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.conversation import TERMINATED, Conversation, end_conversation
from golem_forge.agent.model.selection import PROVIDERS
from golem_forge.agent.run_result import RunResult
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.slash.commands import revocable_ids
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.agent.slash.invocation import prompts_of
from golem_forge.agent.slash.session_commands import known_models
from golem_forge.agent.trust import NotTrusted
from golem_forge.cli.dry_run import check_start
from golem_forge.cli.run import RunArgs
from golem_forge.cli.web import parse_address_options, web_settings
from golem_forge.config.program import program_root
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.signals import termination_signals
from golem_forge.core.text import display_path, escape_control_chars
from golem_forge.events.index import SessionIndex, find_session
from golem_forge.events.runtime_ui import InputUnavailable
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.sandbox import files
from golem_forge.sandbox.target import FileKind
from golem_forge.storage.home import forge_home
from golem_forge.toolsets.search.grep_files import zone_files
from golem_forge.ui import session_ui
from golem_forge.ui.headless import HeadlessAdapter, LineAdapter, PlainAdapter
from golem_forge.ui.line_terminal import forbid_colour
from golem_forge.ui.session_ui import CombinedUI, SessionUI, exit_code, exit_code_for, status_for

if TYPE_CHECKING:
    from golem_forge.ui.web.app import WebAdapter

_SECOND_SIGINT_S: Final = 2.0
_ID_SHOWN: Final = 12

_REFUSALS: Final = (ConfigError, NotTrusted, ForgeError)
"""Errors that end a start before anything ran."""


async def start(asked: RunArgs) -> int:
    try:
        if asked.resume:
            _name_resumed(asked)
        if not asked.headless:
            has_model = check_start(asked)  # what is wrong with the files is said before a prompt is drawn
            if not has_model and "terminal" in asked.ui:
                from golem_forge.cli.models import setup_model

                await setup_model(forge_home(), first_run=True)
        following = FollowingSession()
        code = await _run(asked, following)
        while following.id:  # the person said `/resume`: this session has ended, that one begins
            asked = replace(asked, resume=following.id, worker=None, model=None, input=None, attach=[])
            _name_resumed(asked)
            following = FollowingSession()
            code = await _run(asked, following)
        return code
    except _REFUSALS as error:
        for problem in _problems(error):
            print(f"forge: {escape_control_chars(problem)}", file=sys.stderr)
        return exit_code_for(error)


def _name_resumed(asked: RunArgs) -> None:
    """Prints which session is resumed and where; it runs in its own directory, not in this one."""
    try:
        found = find_session(forge_home().path, asked.resume, root=program_root(asked.directory))
    except ForgeError:
        return  # the start refuses, in the form that was asked for
    asked.resume = found.id
    if found.root and asked.trace != "quiet":
        print(f"resuming {found.id[:_ID_SHOWN]} in {escape_control_chars(display_path(found.root))}", file=sys.stderr)


@dataclass(slots=True)
class FollowingSession:
    """The session that the person continues with when this one has ended."""

    id: str = ""

    async def open(self, id: str, leave: Callable[[], None]) -> str:
        self.id = id
        leave()
        return f"This session ends; {id[:_ID_SHOWN]} goes on."


async def _run(asked: RunArgs, following: FollowingSession) -> int:
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
    runtime.uses_directory_mode = not asked.headless
    if asked.ui == {"terminal"}:  # a page would lose its address
        runtime.open_session = following.open
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
            status, problem = status_for(error), "\n".join(_problems(error))
            runtime.bus.emit("status", {"type": "error", "message": problem, "code": status.value})
            adapter.finished(RunResult(success=False, status=status, error=problem))
            return exit_code_for(error)
        await runtime.ask_directory_mode()
        return await _run_to_end(asked, runtime, adapter, signals)
    finally:
        await runtime.aclose()
        await adapter.shutdown()


async def _run_to_end(asked: RunArgs, runtime: WorkerRuntime, adapter: SessionUI, signals: _Signals) -> int:
    if asked.headless or runtime.mode == "single":
        text = asked.input
        if text is None and not asked.headless:
            try:
                text = await _first_input(runtime, adapter)
            except InputUnavailable:  # the person left instead
                end_conversation(runtime, None)
                return _exit_code_after_leaving(runtime, adapter, None)
        result = await runtime.run(text or "", asked.attach)
        adapter.finished(result)
        signals.nothing_runs()
        await adapter.stay(result)
        return exit_code(result)
    conversation = Conversation(runtime)

    async def leave_when_asked() -> None:
        await adapter.exit_requested.wait()
        conversation.leave()

    watcher = asyncio.ensure_future(leave_when_asked())
    try:
        last = await conversation.run(asked.input or "", asked.attach)
    finally:
        watcher.cancel()
    end_conversation(runtime, last)
    return _exit_code_after_leaving(runtime, adapter, last)


async def _first_input(runtime: WorkerRuntime, adapter: SessionUI) -> str:
    """Returns the first input of a worker that answers once; slash commands work until then."""
    commands = SlashCommands(runtime, leave=lambda: adapter.request_exit(0))
    try:
        return (await runtime.ui.get_user_input("> ", cancel=adapter.exit_requested)).content
    finally:
        await commands.aclose()


def _exit_code_after_leaving(runtime: WorkerRuntime, adapter: SessionUI, last: RunResult | None) -> int:
    """A conversation ends as the person left it, not as its last answer ended."""
    if adapter.exit_code or not runtime.signal or last is None:
        return adapter.exit_code
    return exit_code(last)


class _Signals:
    """A closed terminal does not end the process under `nohup`."""

    def __init__(self, runtime: WorkerRuntime, adapter: SessionUI) -> None:
        self._runtime = runtime
        self._adapter = adapter
        self._last = -_SECOND_SIGINT_S

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in termination_signals():
            loop.add_signal_handler(number, self._terminate)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)

    def nothing_runs(self) -> None:
        """Makes an interrupt mean from now on that the person leaves."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._adapter.request_exit)

    def _interrupt(self) -> None:
        now = time.monotonic()
        again, self._last = now - self._last < _SECOND_SIGINT_S, now
        self._runtime.interrupt()
        if again:
            self._adapter.request_exit(session_ui.INTERRUPTED)

    def _terminate(self) -> None:
        self._runtime.interrupt(TERMINATED)
        self._adapter.request_exit(session_ui.TERMINATED)


def _problems(error: Exception) -> Sequence[str]:
    return error.problems if isinstance(error, ConfigError) else (str(error),)


def adapter_for(asked: RunArgs, runtime: WorkerRuntime) -> SessionUI:
    """Raises ConfigError where a page cannot be served as asked."""
    if asked.headless:
        return HeadlessAdapter(runtime.bus, json=asked.json, trace=asked.trace or "summary")
    page = _SessionPage(asked, runtime)
    if asked.ui == {"web"}:
        runtime.open_page = page.another_link
        adapter = page.adapter()  # says what is missing before the next line would
        from golem_forge.cli.web_server import on_enter

        another = " Enter prints another link." if on_enter(adapter.show_link) else ""
        print(f"Ctrl-C stops what runs; twice within 2 seconds it ends the session.{another}", file=sys.stderr)
        return adapter
    uis = CombinedUI(_terminal(asked, runtime), *([page.adapter()] if asked.on_page else []))
    runtime.open_page = partial(page.opened, uis)
    return uis


def _terminal(asked: RunArgs, runtime: WorkerRuntime) -> SessionUI:
    if asked.plain:
        forbid_colour()
        return LineAdapter(runtime.bus, trace=asked.trace or "normal")
    from golem_forge.ui.terminal import create_event_cli_adapter

    adapter = create_event_cli_adapter(
        runtime.bus,
        trace_level=asked.trace or "normal",
        home=runtime.home.path,
        zone_listing=zone_names(runtime),
        session_ids=session_ids(runtime),
        model_names=model_names(runtime),
        rule_ids=lambda: revocable_ids(runtime),
        server_names=server_names(runtime),
        prompts=prompts(runtime),
    )
    if not isinstance(adapter, PlainAdapter):
        adapter.offer_files(mentionable_files(runtime))
    return adapter


class _SessionPage:
    """The page of a session, served from the start or from the first `/web` on."""

    def __init__(self, asked: RunArgs, runtime: WorkerRuntime) -> None:
        self._asked = asked
        self._runtime = runtime
        self._adapter: WebAdapter | None = None

    def adapter(self) -> WebAdapter:
        directory = self._directory()
        settings = web_settings(directory, self._asked.overrides)
        try:
            reach = parse_address_options(self._asked, settings.web_port)
        except ForgeError as refused:
            raise ConfigError(refused.message) from None
        from golem_forge.cli.web_server import LoginLink
        from golem_forge.ui.web.app import WebAdapter

        link = LoginLink(self._runtime.home)
        self._adapter = WebAdapter(
            self._runtime,
            reach,
            directory=directory,
            show_link=link.show,
            forget_links=link.forget,
            notify=settings.web_notify,
        )
        return self._adapter

    async def opened(self, uis: CombinedUI) -> str:
        """Runs `/web`: serves the page if it is not served yet, and returns a link."""
        if self._adapter is not None:
            return await self.another_link()
        adapter = self.adapter()
        try:
            await uis.join(adapter)
        except BaseException:
            self._adapter = None
            raise
        return adapter.address

    async def another_link(self) -> str:
        assert self._adapter is not None
        self._adapter.show_link()
        return self._adapter.address

    def _directory(self) -> Path:
        """Returns the directory; a resumed session uses its own."""
        asked = self._asked
        if asked.resume:
            root = find_session(self._runtime.home.path, asked.resume, root=asked.directory).root
            return Path(root) if root else asked.directory
        return asked.directory


_MOST_SESSIONS: Final = 100
_MOST_FILES: Final = 5000
_LISTING_S: Final = 5.0


def zone_names(runtime: WorkerRuntime) -> Callable[[str], list[str]]:
    """(zone directory, `/` for the zones themselves, none for the default zone) → what the root worker could list
    there."""

    def names(directory: str) -> list[str]:
        sandbox = runtime.path.sandbox
        if sandbox is None:
            return []
        with closing(sandbox.target(directory or ".", Verb.READ)) as target:
            found = [entry for entry in files.list_dir(target) if entry.addressable]
        return [f"{entry.name}/" if entry.kind is FileKind.DIRECTORY else entry.name for entry in found]

    return names


def mentionable_files(runtime: WorkerRuntime) -> Callable[[], Awaitable[list[str]]]:
    """The files that `@` offers: those a search of the root worker would look at."""

    async def paths() -> list[str]:
        sandbox = runtime.path.sandbox
        if sandbox is None:
            return []
        return await zone_files(sandbox, runtime.path.path_rules(), _MOST_FILES, _LISTING_S)

    return paths


def model_names(runtime: WorkerRuntime) -> Callable[[], list[str]]:
    """Models that somebody named, then the providers as beginnings."""
    return lambda: [*known_models(runtime), *(f"{provider}:" for provider in PROVIDERS)]


def session_ids(runtime: WorkerRuntime) -> Callable[[], list[str]]:
    """Returns a function that lists session ids, newest first."""
    return lambda: [each.id for each in SessionIndex(runtime.home.path).sessions(limit=_MOST_SESSIONS)]


def server_names(runtime: WorkerRuntime) -> Callable[[], Iterable[str]]:
    """Returns a function that lists the MCP servers of the root worker."""
    return lambda: runtime.path.parts.get(ServerAccess).servers_of(runtime.path.worker)


def prompts(runtime: WorkerRuntime) -> Callable[[], list[dict[str, Any]]]:
    """Returns a function that lists the prompts of those servers as commands."""
    return lambda: [
        {"name": name, "fields": each.fields, "description": each.description}
        for name, each in prompts_of(runtime).items()
    ]
