"""EditorSession: one session of a client, as a UI of its runtime: prompts in, updates and questions out.

Takes a WorkerRuntime that is not started. `open` raises what a start raises, and RpcError where the editor's directory
is in no zone of the program. A prompt is one turn, or one slash command; commands run beside a turn. Live output is
sent at most five times a second for each call. `aclose` ends everything that runs, like a closed terminal.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import mimetypes
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from golem_forge.agent.conversation import TERMINATED, Conversation, end_conversation
from golem_forge.agent.recorded_sessions import replay, replay_thoughts, session_title, session_titles
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS
from golem_forge.agent.slash.invocation import ordered_manual_tools, prompts_of
from golem_forge.agent.slash.parser import is_command
from golem_forge.agent.slash.session_commands import known_models
from golem_forge.config.mcp_merge import editor_servers
from golem_forge.config.run_block import MODE_MEANINGS, ApprovalMode
from golem_forge.core.errors import ConfigError, ForgeError, missing_library
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, one_line, shorten
from golem_forge.events.index import find_session
from golem_forge.events.serialization import Event, iso_now
from golem_forge.mcp.client.trust_store import ServerTrustError
from golem_forge.orchestrator.bound_output import stored_picture
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import SourceKind
from golem_forge.ui.acp.questions import Questions, SessionLink
from golem_forge.ui.acp.transport import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Json, RpcError
from golem_forge.ui.acp.updates import UpdateStream, code_block

if TYPE_CHECKING:
    from golem_forge.ui.web.app import WebAdapter

MODE_OPTION: Final = "mode"
MODEL_OPTION: Final = "model"
_MODE_NAMES: Final = {
    ApprovalMode.INTERACTIVE: "Ask",
    ApprovalMode.CONTAINED: "Work on its own here",
    ApprovalMode.PLAN: "Plan",
    ApprovalMode.STRICT: "Ask for everything",
    ApprovalMode.AUTO_DENY: "Deny what asks",
    ApprovalMode.APPROVE_ALL: "Approve all",
}
_MOST_INPUT: Final = 500_000
_MOST_TITLE: Final = 80
_MOST_MODELS: Final = 100
_MOST_ERROR: Final = 500
_MOST_URI: Final = 4096
_OUTPUT_SECONDS: Final = 0.2
_DENYING_SECONDS: Final = 0.05
_LINES: Final = regex(r"L\d+(?:[-:]L?\d+)?")
_HANDLE: Final = regex(r"out_[0-9a-f]{12}")
_HIDDEN_COMMANDS: Final = frozenset({"t"})
_KNOWN_FIRST: Final = frozenset({"sessionStarted", "workerUpdate", "usageUpdated"})
"""Events of the start that later updates depend on."""
_REFRESHING: Final = frozenset({"manualToolsAvailable", "catalogChanged", "mcpStatus"})
_MOST_PROMPTS: Final = 16
BUSY: Final = f"this session has {_MOST_PROMPTS} prompts that wait; wait for one, or cancel them first"


@dataclass(slots=True, eq=False)
class _Prompt:
    """Known by identity: a turn and a command beside it look alike."""

    cancelled: bool = False


class EditorSession:
    def __init__(self, runtime: WorkerRuntime, link: SessionLink) -> None:
        self._runtime = runtime
        runtime.open_page = self._open_page
        self._link = link
        self._updates = UpdateStream(self, terminals=link.client.terminals, extras=link.client.extras)
        self._questions = Questions(runtime.bus, link, self._updates, self.page_link, self.cancel)
        self._page: WebAdapter | None = None
        self._page_link = ""
        self._conversation: Conversation | None = None
        self._prompts: list[_Prompt] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._turns = asyncio.Lock()
        self._last: RunResult | None = None
        self._forget: list[Callable[[], None]] = []
        self._walls: asyncio.Future[None] | None = None
        self._printing: dict[str, asyncio.TimerHandle] = {}
        self._live = False
        self._told: dict[str, Any] = {}
        """What the client was told last, by the kind of update."""
        self._modes: tuple[ApprovalMode, ...] = ()
        self._models: list[str] = []
        self._title = ""
        self._closed: asyncio.Event | None = None
        self.notices: list[str] = []
        """What the person should know at the start."""

    # ---- life

    async def open(self, directories: Sequence[Path]) -> None:
        """`directories`: the editor's working directory, and the other roots of its workspace."""
        runtime = self._runtime
        self._forget = [
            runtime.bus.on("*", self._take),
            runtime.ui.attach(self._link.client.ui_name, may_trust=False),
        ]
        try:
            await runtime.initialize()
            for directory in directories:
                if runtime.resumed is None or directory != self.root:  # `session/list` names the root
                    self._check_directory(directory)
            self._models = await run_in_thread(lambda: known_models(runtime))  # looks for keys, which may take a moment
            self._title = await run_in_thread(self._recorded_title) if runtime.resumed is not None else ""
        except BaseException:
            await self._let_go()
            raise
        self._conversation = Conversation(runtime)
        chosen = runtime.controller.mode
        self._modes = tuple(mode for mode in _MODE_NAMES if mode is not ApprovalMode.APPROVE_ALL or mode is chosen)
        self.notices += [*runtime.notices, *self._waiting_servers()]

    async def use_servers(self, entries: Mapping[str, Json]) -> list[str]:
        """The MCP servers that the editor names, as `.mcp.json` would have them. Those that a person approved, byte for
        byte, can be used; the others wait for `forge mcp approve`. Gives what the person should know about them. Only
        names: the rest may hold secrets."""
        if not entries:
            return []
        servers, client = self._runtime.servers, self._link.client.name
        if servers is None:
            named = ", ".join(f"'{one_line(name)[:80]}'" for name in sorted(entries)[:20])
            return [f"The editor names MCP servers ({named}). This worker uses none: its file has no `toolsets.mcp`."]
        program = self._runtime.program
        specs = editor_servers(entries, client, program.root, program.zones)
        try:
            taken = await servers.use_named(specs, client)
        except ServerTrustError as error:
            return [f"The MCP servers of the editor cannot be approved: {error.message}"]
        notices = [f"The editor's MCP server '{name}' is not used: the program has one of that name." for name in taken]
        for name, spec in specs.items():
            if name not in taken and spec.problem:
                notices.append(f"The editor's MCP server '{name}' cannot be used: {spec.problem}")
            elif name not in taken and not servers.book.approved(spec):
                notices.append(
                    f"The editor names the MCP server '{name}'. It is pending: `forge mcp approve {name}` in this "
                    "directory shows what it would get and lets it start."
                )
        return notices

    def begin(self, more_notices: Iterable[str] = ()) -> None:
        """The client knows the session: it is told what holds now."""
        self._live = True
        for notice in (*self.notices, *more_notices):
            self._send(self._updates.note(notice))
        self._tell_commands()
        self._tell_title()
        if self._conversation is not None and self._walls is None:
            self._walls = asyncio.ensure_future(self._conversation.tell_walls())

    async def replay(self) -> None:
        """Sends the recorded past; runs nothing."""
        runtime = self._runtime
        updates = UpdateStream(self, replayed=True, extras=self._link.client.extras)
        past = await run_in_thread(lambda: list(replay(runtime, home=runtime.home)))
        thoughts = await run_in_thread(lambda: replay_thoughts(runtime, home=runtime.home))
        if not self._live:  # this run of the session has only just begun
            starts = [at for at, event in enumerate(past) if event.type == "sessionStarted"]
            past = past[: starts[-1]] if starts else past
        for event in past:
            for update in (*updates.take(event), *updates.recall(thoughts.get(event.seq, ()))):
                self._send(update)
            await self._link.has_room()

    async def aclose(self) -> None:
        if self._closed is not None:
            await self._closed.wait()
            return
        self._closed = asyncio.Event()
        try:
            runtime, conversation = self._runtime, self._conversation
            for prompt in self._prompts:
                prompt.cancelled = True
            self._questions.close()
            asked = runtime.ui.open_count
            while len(self._forget) > 1:  # nobody answers from here on; what happens is still heard
                self._forget.pop()()
            if self._page is not None:  # neither there: a form may have no end of its own
                await self._page.shutdown()
            if asked:
                await asyncio.sleep(_DENYING_SECONDS)  # what waited is recorded as denied, not as interrupted
            runtime.signal.interrupt(TERMINATED)
            if self._walls is not None:
                self._walls.cancel()
            await self._idle.wait()
            if conversation is not None:
                await conversation.aclose()
                end_conversation(runtime, self._last)
            for timer in self._printing.values():
                timer.cancel()
            await self._let_go()
        finally:
            self._closed.set()

    async def _let_go(self) -> None:
        await self._runtime.aclose()
        while self._forget:
            self._forget.pop()()

    # ---- what it is

    @property
    def id(self) -> str:
        return self._runtime.session_id

    @property
    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._closed is not None

    @property
    def root(self) -> Path:
        return self._runtime.program.root

    def state(self) -> Json:
        """Returns the state of a session for a client that opens it."""
        return {
            "modes": {"currentModeId": self._mode.value, "availableModes": [_shown_mode(mode) for mode in self._modes]},
            "configOptions": self.config_options(),
        }

    def config_options(self) -> list[Json]:
        models = list(dict.fromkeys([self._runtime.model_name, *self._models]))[:_MOST_MODELS]
        modes = [_shown_mode(mode) for mode in self._modes]
        return [
            {
                "id": MODE_OPTION,
                "name": "Approval mode",
                "category": "mode",
                "type": "select",
                "currentValue": self._mode.value,
                "options": [{"value": mode.pop("id"), **mode} for mode in modes],
            },
            {
                "id": MODEL_OPTION,
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": self._runtime.model_name,
                "options": [{"value": name, "name": escape_control_chars(name)} for name in models if name],
            },
        ]

    def host_path(self, address: str, worker_id: str) -> str:
        sandbox = self._runtime.sandbox_of(worker_id) if self._runtime.is_ready else None
        if sandbox is None:
            return ""
        try:
            place = sandbox.locate(address)
        except (SandboxError, ForgeError):
            return ""
        return os.path.join(place.zone.host, *place.parts) if place.zone is not None else ""

    def label(self, tool: str) -> str:
        found = self._runtime.path.catalog.get(tool) if self._runtime.is_ready else None
        return found.label if found is not None else ""

    def picture(self, handle: str) -> str:
        folder = self._runtime.home.path / "output" / self._runtime.session_id
        return stored_picture(folder / handle) if _HANDLE.fullmatch(handle) else ""

    # ---- the page

    async def page_link(self) -> str:
        """A link that opens this session in a browser, once. Raises ForgeError."""
        if self._page is not None:
            self._page.show_link()
            return self._page_link
        try:
            from golem_forge.ui.web.app import WebAdapter
            from golem_forge.ui.web.listen import ListenAddress
        except ModuleNotFoundError as error:
            raise ForgeError(missing_library(error) or "The page cannot be served here.") from None

        page = WebAdapter(self._runtime, ListenAddress(port=0), directory=self.root, show_link=self._keep_link)
        await page.initialize()
        self._page = page
        return self._page_link

    def _keep_link(self, link: str) -> None:
        self._page_link = link

    async def _open_page(self) -> str:
        """Runs /web. The link is sent to the client only, because everything on the bus is recorded."""
        link = await self.page_link()
        assert self._page is not None
        self._send(self._updates.say(f"This session in your browser: {link}\n\n"))
        return self._page.address

    # ---- what the client asks for

    async def prompt(self, blocks: Sequence[Any]) -> Json:
        conversation = self._conversation
        if conversation is None or self._closed is not None or conversation.left:
            raise RpcError(INVALID_REQUEST, "this session has ended; session/load goes on with it")
        text, said, attachments = self._input(blocks)
        command = is_command(text) and not attachments
        if len(self._prompts) >= _MOST_PROMPTS:
            raise RpcError(INVALID_REQUEST, BUSY)
        prompt = _Prompt()
        self._prompts.append(prompt)
        self._idle.clear()
        try:
            if command:
                await conversation.command(text, self._link.client.ui_name)
                return {"stopReason": "cancelled" if prompt.cancelled else "end_turn"}
            async with self._turns:  # one after the other, in the order in which they came
                if prompt.cancelled or self._closed is not None or conversation.left:
                    return {"stopReason": "cancelled"}
                self._last = await conversation.turn(text, attachments, said=said)
            for update in self._updates.end_turn():
                self._send(update)
            self._title = self._title or shorten(one_line(" ".join(text.split())), _MOST_TITLE)
            return {"stopReason": self._stop_reason(self._last, prompt)}
        finally:
            self._prompts.remove(prompt)
            if not self._prompts:
                self._idle.set()
            for call_id in list(self._printing):
                self._print(call_id)
            if self._closed is None:
                self._tell_settings()
                self._tell_title()

    @property
    def has_left(self) -> bool:
        """Whether the person used /exit."""
        return self._conversation is not None and self._conversation.left

    def cancel(self) -> None:
        """Does nothing where nothing runs: the next prompt must not be cancelled by it."""
        if not self._prompts:
            return
        for prompt in self._prompts:
            prompt.cancelled = True
        self._questions.cancel_forms()
        self._runtime.bus.emit("interrupt", {}, source=self._link.client.ui_name)

    def set_mode(self, mode_id: str) -> None:
        allowed = [mode.value for mode in self._modes]
        if mode_id not in allowed:
            raise RpcError(INVALID_PARAMS, f"the approval modes of this session are {', '.join(allowed)}")
        self._runtime.switch_approval(ApprovalMode(mode_id), self._link.client.ui_name)
        self._tell_settings()

    def set_option(self, option: str, value: Any) -> None:
        if option == MODE_OPTION and isinstance(value, str):
            self.set_mode(value)
        elif option == MODEL_OPTION and isinstance(value, str):
            try:
                self._runtime.switch_model(value)
            except (ConfigError, ForgeError) as error:
                raise RpcError(INVALID_PARAMS, shorten(escape_control_chars(str(error)), _MOST_ERROR)) from None
            self._tell_settings()
        else:
            raise RpcError(
                INVALID_PARAMS, f"the options of a session are {MODE_OPTION} and {MODEL_OPTION}, with a text"
            )

    # ---- a prompt

    def _input(self, blocks: Sequence[Any]) -> tuple[str, str | None, list[Mapping[str, Any]]]:
        """The text of a prompt; what of it the person said, where the editor put in text of files; and its files as
        the runtime has kept them."""
        texts: list[str] = []
        embedded = any(block.type == "resource" for block in blocks)
        files: list[tuple[str, bytes]] = []
        for block in blocks:
            match block.type:
                case "text":
                    texts.append(block.text)
                case "image":
                    files.append((_file_name(block.uri, block.mime_type, len(files) + 1), _decoded(block.data)))
                case "resource_link":
                    texts.append(self._mention(block.uri, block.name))
                case "resource":
                    self._embed(block.resource, texts, files)
                case _:
                    raise RpcError(INVALID_PARAMS, f"a prompt takes no {block.type}")
        text = "".join(texts)
        if len(text) > _MOST_INPUT:
            raise RpcError(INVALID_PARAMS, f"a prompt has at most {_MOST_INPUT:,} characters")
        try:
            kept = [self._runtime.receive(name, data) for name, data in files]
        except ForgeError as error:
            raise RpcError(INVALID_PARAMS, error.message) from None
        said = "".join(block.text for block in blocks if block.type == "text") if embedded else None
        return text, said, [{"digest": each.digest, "name": each.name} for each in kept]

    def _embed(self, resource: Any, texts: list[str], files: list[tuple[str, bytes]]) -> None:
        text = getattr(resource, "text", None)
        if isinstance(text, str):
            texts.append(f"\n\n{self._mention(resource.uri, '')}\n{code_block(text)}\n\n")
        else:
            files.append((_file_name(resource.uri, resource.mime_type, len(files) + 1), _decoded(resource.blob)))

    def _mention(self, uri: str, name: str) -> str:
        """Returns an editor's reference as an address for the file tools. A file outside of every zone is only named:
        no tool can read it.
        """
        parts = _uri_parts(uri)
        if parts is None:
            return f"`{one_line(name or 'file')}`"
        if parts.scheme not in ("", "file"):
            return f"`{one_line(uri)}`"
        path = unquote(parts.path)
        sandbox = self._runtime.path.sandbox
        try:
            address = sandbox.locate(path).virtual if sandbox is not None else ""
        except (SandboxError, ForgeError):
            address = ""
        lines = f"#{parts.fragment}" if _LINES.fullmatch(parts.fragment) else ""
        return f"`{one_line(address)}{lines}`" if address else f"`{one_line(name or os.path.basename(path))}`"

    def _stop_reason(self, result: RunResult, prompt: _Prompt) -> str:
        if prompt.cancelled or result.status in (RunStatus.INTERRUPTED, RunStatus.TERMINATED):
            return "cancelled"
        if result.finish == "refused":
            self._send(self._updates.say(f"{result.error}."))
            return "refusal"
        if result.status is RunStatus.COMPLETED:
            return "max_tokens" if result.finish == "length" else "end_turn"
        if result.status is RunStatus.LIMIT:
            return "max_turn_requests"
        raise RpcError(INTERNAL_ERROR, result.error or "the turn failed")

    # ---- what happens

    def _take(self, event: Event) -> None:
        if not self._live:
            if event.type in _KNOWN_FIRST:  # `runtime.notices` has what must be told
                list(self._updates.take(event))
            return
        if event.type == "toolOutput":
            self._updates.keep_output(event)
            self._print_soon(str(event.wire["toolCallId"]))
            return
        if event.type == "toolResult" and (timer := self._printing.pop(str(event.wire["toolCallId"]), None)):
            timer.cancel()
        self._questions.take(event)
        for update in self._updates.take(event):
            self._send(update)
        if event.type == "status" and event.wire.get("code") == "APPROVAL_MODE":
            self._tell_settings()
        if event.type in _REFRESHING:
            self._tell_commands()

    def _print_soon(self, call_id: str) -> None:
        if call_id not in self._printing:
            later = asyncio.get_running_loop().call_later
            self._printing[call_id] = later(_OUTPUT_SECONDS, self._print, call_id)

    def _print(self, call_id: str) -> None:
        if (timer := self._printing.pop(call_id, None)) is not None:
            timer.cancel()
        if (update := self._updates.output(call_id)) is not None:
            self._send(update)

    # ---- what holds now

    @property
    def _mode(self) -> ApprovalMode:
        return self._runtime.controller.mode

    def _tell_settings(self) -> None:
        if not self._runtime.is_ready:
            return
        options = self.config_options()
        self._tell("current_mode_update", currentModeId=self._mode.value)
        self._tell("config_option_update", configOptions=options)

    def _tell_title(self) -> None:
        if self._title and self._told.get("session_info_update") != self._title:
            self._told["session_info_update"] = self._title
            self._send({"sessionUpdate": "session_info_update", "title": self._title, "updatedAt": iso_now()})

    def _tell_commands(self) -> None:
        commands = [
            _command(name, each.does, each.usage.partition(" ")[2])
            for name, each in BUILT_IN_COMMANDS.items()
            if name not in _HIDDEN_COMMANDS
        ]
        with contextlib.suppress(ForgeError):
            commands += [_command(name, each.description, "") for name, each in prompts_of(self._runtime).items()]
        own = (tool for tool in ordered_manual_tools(self._runtime.path.catalog) if tool.source is SourceKind.CUSTOM)
        commands += [_command(tool.name, tool.description, "options") for tool in own]
        self._tell("available_commands_update", availableCommands=commands)

    def _tell(self, kind: str, /, **members: Any) -> None:
        """Sends an update only if it differs from what the client knows."""
        if self._told.get(kind) != members:
            self._told[kind] = members
            self._send({"sessionUpdate": kind, **members})

    def note_state(self) -> None:
        """Remembers that the client got the state with its answer."""
        self._told["current_mode_update"] = {"currentModeId": self._mode.value}
        self._told["config_option_update"] = {"configOptions": self.config_options()}

    def _send(self, update: Json) -> None:
        self._link.send(update)

    def _recorded_title(self) -> str:
        home = self._runtime.home.path
        try:
            return session_title(find_session(home, self.id), session_titles(home))
        except ForgeError:
            return ""

    def _waiting_servers(self) -> list[str]:
        """The program's own MCP servers that no person has approved: an editor is not asked about them."""
        servers = self._runtime.servers
        if servers is None:
            return []
        specs = servers.pool.specs.values()
        waiting = [spec.name for spec in specs if spec.enabled and not spec.problem and not servers.book.approved(spec)]
        return [f"The MCP server '{name}' is pending. `forge mcp approve {name}` lets it start." for name in waiting]

    def _check_directory(self, directory: Path) -> None:
        zones = self._runtime.path.sandbox.zones if self._runtime.path.sandbox is not None else {}
        real = os.path.realpath(directory)
        inside = any(Path(real).is_relative_to(zone.host) for name, zone in zones.items() if name != USER_TOOLS)
        if not inside:
            named = ", ".join(f"/{name}" for name in zones if name != USER_TOOLS) or "none"
            raise RpcError(
                INVALID_PARAMS,
                f"the editor's directory '{escape_control_chars(directory.name)}' is outside of every zone of this "
                f"program (zones: {named}). Open a directory inside of a zone, or give the program a zone for it "
                "under `sandbox.zones` in forge.yaml.",
            )


def _shown_mode(mode: ApprovalMode) -> Json:
    return {"id": mode.value, "name": _MODE_NAMES[mode], "description": MODE_MEANINGS[mode]}


def _command(name: str, description: str, hint: str) -> Json:
    text = shorten(one_line(" ".join(description.split()[:60])), 200) or name
    return {"name": name, "description": text, **({"input": {"hint": hint}} if hint else {})}


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError(INVALID_PARAMS, "the data of a file is base64") from None


def _uri_parts(uri: str) -> SplitResult | None:
    """Splits a URI; None if it is too long or no URI."""
    try:
        return urlsplit(uri) if len(uri) <= _MOST_URI else None
    except ValueError:
        return None


def _file_name(uri: str | None, mime_type: str | None, number: int) -> str:
    """Returns a file name with the suffix of its type, by which the runtime selects how to send it to a model."""
    parts = _uri_parts(uri or "")
    name = os.path.basename(unquote(parts.path)) if parts is not None else ""
    ending = mimetypes.guess_extension(mime_type or "") or ""
    return name if name and (not ending or name.endswith(ending)) else f"{name or f'file-{number}'}{ending}"
