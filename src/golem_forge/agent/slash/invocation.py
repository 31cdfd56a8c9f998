"""Slash commands that run a tool or a prompt for a person, and what every command is given.

SlashHost is what commands need of a running worker (WorkerRuntime is one); Invocation is one command. RecentDecisions
keeps the Decisions of the session's last calls as UIs were shown them, for `/why`.

`run_tool` binds what was typed by the tool's schema, asks for the rest with a form, and makes the call down the one
path as caller `human`; its result is shown like every result. `run_prompt` binds the arguments of an MCP server's
prompt (`/<server>__<prompt>`) or of one of the program's own (`/<prompt>`) the same way and puts the text into the
input line; nothing is sent to a model. Both raise CommandError for what was typed wrong, with the place in the line;
`run_tool` also for a call that was not allowed to run, `run_prompt` ForgeError with the server's state.

`ordered_manual_tools` lists the tools a person may run: their own first, then native ones, then those of MCP servers.
`conceal_secrets` keeps what they type into secret fields out of the journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.history import RewindPoint
from golem_forge.agent.slash.parser import (
    BUILT_IN_NAMES,
    TOOL_RUNNERS,
    CommandError,
    ParsedCommand,
    callable_names,
    find_name,
    is_command,
    shell_command,
    tokenize,
    unknown_name,
)
from golem_forge.config.program import Program
from golem_forge.config.run_block import ApprovalMode, GenerationSettings
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import shorten_prose
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.open_questions import NOBODY
from golem_forge.events.redaction import NO_CREDENTIAL, classify_name
from golem_forge.events.runtime_ui import RuntimeUI
from golem_forge.events.serialization import Event
from golem_forge.mcp.client.resources import PromptCommand, ServerAccess, prompt_commands, prompt_text
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.cli_args import BindingError, OptionToken, bind_partial
from golem_forge.tools.context import ToolContext
from golem_forge.tools.forms import (
    derive_fields,
    errors_by_field,
    form_arguments,
    holds_secret,
    mask_secrets,
    prefill_fields,
    restore_secrets,
)
from golem_forge.tools.tool import SourceKind, Tool, may_call
from golem_forge.tools.validation import InputInvalid

OpenPage = Callable[[], Awaitable[str]]
"""Serves this session as a page from now on, shows the person a link that lets them in, and gives the address alone.
The link goes past the bus: whatever is on it is recorded. Raises ForgeError."""


OpenSession = Callable[[str, Callable[[], None]], Awaitable[str]]
"""Goes on with a recorded session instead of this one, or beside it. Takes its id and what ends this session; gives
what is said to the person. Raises ForgeError."""


class UsageSums(Protocol):
    """The usage of requests so far (`agent.budget.Meter`)."""

    def sums(self) -> dict[str, Any]: ...


class PathHost(Protocol):
    """Gives the orchestrator whose catalog and servers a line refers to."""

    @property
    def path(self) -> Orchestrator: ...


class SlashHost(PathHost, Protocol):
    """Read-only on purpose: commands change things by the methods below."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def home(self) -> ForgeHome: ...
    @property
    def program(self) -> Program: ...
    @property
    def worker(self) -> Worker: ...
    @property
    def bus(self) -> EventBus: ...
    @property
    def ui(self) -> RuntimeUI: ...
    @property
    def rules(self) -> RuleBook: ...
    @property
    def controller(self) -> ApprovalController: ...
    @property
    def journal(self) -> Journal | None: ...
    @property
    def call_ids(self) -> set[str]:
        """Returns the call ids that others chose, also those recorded before a resume; each is used once."""

    @property
    def meter(self) -> UsageSums: ...
    @property
    def model_name(self) -> str: ...
    @property
    def context_used(self) -> int: ...
    @property
    def context_limit(self) -> int: ...

    @property
    def skills_summary(self) -> str:
        """Returns the number of offered skills, and the problems of the others; empty if there are none."""

    async def refresh(self) -> None:
        """Code that was edited counts from now on. Raises ForgeError."""

    @property
    def open_page(self) -> OpenPage | None:
        """Shows this session in a browser, for whoever runs in a process that can; None: it cannot."""

    @property
    def open_session(self) -> OpenSession | None:
        """Opens another session for `/resume`; None if that is not possible here."""

    @property
    def workers(self) -> tuple[Worker, ...]: ...

    async def compact_history(self, wish: str) -> tuple[int, int] | None:
        """Tokens before and after; None: there is nothing to condense. Raises ForgeError."""

    @property
    def generation(self) -> GenerationSettings: ...
    def switch_model(self, name: str, generation: GenerationSettings | None = None) -> Any: ...
    def clear_history(self) -> Any: ...

    def switch_approval(self, mode: ApprovalMode, by: str) -> None:
        """Changes the approval mode of this session from the next call on. Raises ForgeError."""

    def leave_plan(self, by: str) -> None:
        """Ends plan mode and returns to the mode before."""

    async def rewind_points(self) -> tuple[RewindPoint, ...]:
        """The messages of the person that the history still has, oldest first."""

    def check_can_rewind(self) -> None:
        """Raises ForgeError while an answer is on its way or a call runs."""

    def rewind(self, point: RewindPoint, *, conversation: bool, files: bool) -> None:
        """Back to before this message, and told; `files`: what was changed since is undone already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command that is being run."""

    host: SlashHost
    parsed: ParsedCommand
    decisions: RecentDecisions
    leave: Callable[[], None]

    @property
    def args(self) -> list[str]:
        return self.parsed.args


_MAX_FORMS: Final = 20


async def run_tool(host: SlashHost, name: str, tokens: Sequence[OptionToken]) -> Outcome | None:
    """Calls a tool with typed options. Returns None if the person closed the form."""
    try:
        tool = find_tool(host.path.catalog, name)
    except CommandError:  # it may be a tool of a server that has not answered yet
        await host.path.wait_for_tool(name, Caller.HUMAN)
        tool = find_tool(host.path.catalog, name)
    form = {
        "source": "command",
        "title": tool.label or tool.name,
        "message": shorten_prose("".join(tool.description.strip().splitlines()[:1]), 200),
        "fields": derive_fields(tool.input_schema),
    }
    check = partial(_argument_problems, tool)
    args = await _arguments(host, tool.input_schema, tokens, form, check, "valid values; nothing was run")
    if args is None:
        return None
    outcome = await host.path.call(ToolCall(tool.name, args, Caller.HUMAN))
    if not outcome.executed and outcome.error:  # no UI knows whose call it was that never started
        raise CommandError(outcome.error)
    return outcome


def find_tool(catalog: Catalog, typed: str) -> Tool:
    """Returns the tool by its name or an alias, in any case. Raises CommandError, also for a tool that only models may
    call.
    """
    name = find_name(typed, callable_names([*catalog, *catalog.hidden_tools()]))
    if name is None and (refusal := only_for_models(catalog, typed)):
        raise CommandError(refusal)
    named = typed if typed in catalog.aliases() else unknown_name(typed)
    try:
        return catalog.resolve(name or named, Caller.HUMAN)
    except ToolNotFound as error:
        raise CommandError(error.message) from None


def only_for_models(catalog: Catalog, typed: str) -> str:
    """Why a person cannot call the tool of this name; empty: there is no such tool, or they can."""
    name = find_name(typed, catalog.names())
    tool = catalog.get(name) if name is not None else None
    if tool is None or may_call(Caller.HUMAN, tool.mode):
        return ""
    remedy = "" if tool.source is SourceKind.NATIVE else '; @tool(mode="both") lets people call it too'
    return f"'{tool.name}' is a tool for models only{remedy}"


async def _arguments(
    host: SlashHost,
    schema: dict[str, Any],
    tokens: Sequence[OptionToken],
    form: Mapping[str, Any],
    check: Callable[[dict[str, Any]], Mapping[str, str]],
    lacks: str,
) -> dict[str, Any] | None:
    """Returns the typed arguments, converted by the schema. If something is missing or `-i` was given, the form is
    shown until `check` finds no problem. Returns None if the person closed it.
    """
    try:
        bound = bind_partial(schema, tokens)
    except BindingError as error:
        secret = any(holds_secret(each) or classify_name(each["name"]) != NO_CREDENTIAL for each in form["fields"])
        raise CommandError(error.unquoted if secret else str(error)) from None
    given: dict[str, Any] = dict(bound.args)
    if not bound.interactive and not bound.missing:
        return given
    missing = f"Missing required: {', '.join(bound.missing)}" if bound.missing else ""
    if not host.ui.attached:
        raise CommandError(missing or "No form can be shown here: give the values as options instead of -i")
    errors: Mapping[str, str] = {}
    for _ in range(_MAX_FORMS):
        fields = [
            {**field, "error": errors[field["name"]]} if field["name"] in errors else field
            for field in prefill_fields(form["fields"], given)
        ]
        shown = {
            **form,
            "message": "; ".join(text for name, text in errors.items() if not name) or form["message"],
            "fields": fields,
            "workerPath": [{"id": host.id, "name": host.worker.name, "depth": 0, "task": ""}],
        }
        answer = await host.ui.request_form(shown, worker_id=host.id)
        if answer["action"] != "accept":
            if answer.get("by") == NOBODY:
                raise CommandError(missing or f"The form was closed. {answer.get('reason', '')}".strip())
            return None
        given = form_arguments(fields, restore_secrets(form["fields"], answer.get("values") or {}, given))
        errors = check(given)
        if not errors:
            return given
    raise CommandError(f"The form was sent {_MAX_FORMS} times without {lacks}")


def _argument_problems(tool: Tool, args: dict[str, Any]) -> dict[str, str]:
    """Returns problems by field; the empty name holds those that belong to no field."""
    try:
        tool.validate(args)
    except InputInvalid as error:
        return errors_by_field(error.fields) or {"": error.message}
    except ForgeError as error:
        return {"": error.message}
    except Exception as error:  # a validator of the tool's own; the path will say what to make of it
        return {"": f"could not be checked ({error_name(error)})"}
    return {}


PREFILL: Final = "prefill"
"""The code of a status whose message belongs into the input line; a UI without one shows it."""


def prompts_of(host: PathHost) -> dict[str, PromptCommand]:
    """Returns the prompts of the program (`@prompt`), then those of its servers."""
    place = host.path.parts.get(ServerAccess)
    found = {command.name: command for command in map(_own_prompt, host.path.catalog.reserved("prompt"))}
    if place.pool is not None:
        found = {**prompt_commands(place.pool, place.servers_of(host.path.worker)), **found}
    return found


def _own_prompt(tool: Tool) -> PromptCommand:
    name = tool.name.partition(":")[2]
    return PromptCommand(name=name, server="", prompt=name, description=tool.description, schema=tool.input_schema)


def find_prompt(host: PathHost, typed: str) -> PromptCommand | None:
    commands = prompts_of(host)
    name = find_name(typed, list(commands))
    return commands[name] if name is not None else None


async def run_prompt(host: SlashHost, command: PromptCommand, tokens: Sequence[OptionToken]) -> str:
    """Runs a prompt. Returns the text for the person; empty if the result is put into their input line."""
    form = {
        "source": command.server,
        "title": command.name,
        "message": command.description,
        "fields": command.fields,
    }

    def check(given: dict[str, Any]) -> dict[str, str]:
        complete = all(name in given for name in command.schema.get("required", ()))
        return {} if complete else {"": ""}  # the form itself says what is required

    lacks = "what is required; nothing was asked for"
    args = await _arguments(host, dict(command.schema), tokens, form, check, lacks)
    if args is None:
        return "Nothing was asked for."
    result = await (_server_messages if command.server else _own_messages)(host, command, args)
    host.bus.emit("status", {"type": "info", "message": prompt_text(command, result), "code": PREFILL}, host.id)
    return ""


async def _server_messages(host: SlashHost, command: PromptCommand, args: dict[str, Any]) -> Mapping[str, Any]:
    path = host.path
    pool = path.parts.get(ServerAccess).pool
    assert pool is not None  # the command is one of its servers'
    ctx = ToolContext(
        session_id=host.session_id,
        worker=path.worker,
        caller=Caller.HUMAN,
        cancel=path.signal,
        parts=path.parts,
        redactor=path.redactor,
        home=host.home.path,
    )
    texts = {name: str(value) for name, value in args.items() if value is not None}
    return await pool.get_prompt(command.server, command.prompt, texts, ctx)


async def call_and_show(host: SlashHost, call: ToolCall) -> str:
    """Makes a call as the person's. Its result is shown as every result is, so there is nothing more to say. Raises
    CommandError where it did not run."""
    outcome = await host.path.call(call)
    if not outcome.ok:
        raise CommandError(outcome.error)
    return ""


async def _own_messages(host: SlashHost, command: PromptCommand, args: dict[str, Any]) -> Mapping[str, Any]:
    """Runs a prompt of the program through all stages and returns its messages."""
    outcome = await host.path.call(ToolCall(f"prompt:{command.prompt}", args, Caller.HUMAN))
    if not outcome.ok or outcome.result is None:
        raise CommandError(outcome.error)
    data = outcome.result.value.get("data")
    if isinstance(data, Mapping) and "messages" in data:
        return data
    return {"messages": [{"role": "user", "content": {"type": "text", "text": outcome.result.text}}]}  # cut


_MAX_DECISIONS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    call_id: str
    tool: str
    status: str
    error: str
    decision: Mapping[str, Any] | None


class RecentDecisions:
    """Collects the decisions on a bus until `close`."""

    def __init__(self, bus: EventBus) -> None:
        self._by_id: dict[str, RecordedDecision] = {}
        self._forget = bus.on("toolResult", self._keep)

    def take_over(self, earlier: RecentDecisions) -> None:
        self._by_id.update(earlier._by_id)

    def _keep(self, event: Event) -> None:
        wire = event.wire
        call_id = str(wire["toolCallId"])
        self._by_id.pop(call_id, None)
        self._by_id[call_id] = RecordedDecision(
            call_id=call_id,
            tool=str(wire["toolName"]),
            status=str(wire["status"]),
            error=str(wire.get("error") or ""),
            decision=wire["decision"],
        )
        if len(self._by_id) > _MAX_DECISIONS:
            del self._by_id[next(iter(self._by_id))]

    def last(self) -> RecordedDecision | None:
        return next(reversed(self._by_id.values()), None)

    def find(self, typed: str) -> list[RecordedDecision]:
        """Returns the decisions whose call id begins like this, or of the tool with this name, newest first; an exact
        id alone.
        """
        if typed in self._by_id:
            return [self._by_id[typed]]
        newest_first = list(reversed(self._by_id.values()))
        by_id = [each for each in newest_first if each.call_id.startswith(typed)]
        return by_id or [each for each in newest_first if each.tool == typed][:1]

    def close(self) -> None:
        self._forget()


_PLACES: Final = {SourceKind.CUSTOM: 0, SourceKind.NATIVE: 1, SourceKind.MCP: 2}


def ordered_manual_tools(catalog: Catalog) -> list[Tool]:
    return sorted(catalog.offered(Caller.HUMAN), key=lambda tool: _PLACES[tool.source])


def manual_tools_event(catalog: Catalog) -> dict[str, Any]:
    """The data of `manualToolsAvailable`; `source` lets a UI fold away what is not the person's own."""
    return {"tools": [described_tool(tool) for tool in ordered_manual_tools(catalog)]}


def described_tool(tool: Tool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "label": tool.label or tool.name,
        "description": tool.description,
        "fields": derive_fields(tool.input_schema),
        "source": tool.source.value,
    }
    if tool.category:
        described["category"] = tool.category
    return described


_NOT_RECORDED: Final = "[not recorded: a secret was typed]"
_MISTYPED: Final = "[not recorded: mistyped]"


class ActionHost(PathHost, Protocol):
    """Gives the UI whose tools and questions the actions refer to."""

    @property
    def ui(self) -> RuntimeUI: ...


def conceal_secrets(host: ActionHost, type: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data of an action without secrets, for the bus's readers. What stands in a secret field of its tool
    (`manualToolInvoke`, an edited `approvalResponse`) becomes a placeholder; a command that contains such a value, or
    is mistyped so that nobody knows what it contains, is recorded by its name alone.

    Threat: a secret that a person types for a tool reaches the journal, another UI or a log. The redactor knows fields
    that are named like a credential by their names, but cannot find them in a line.
    """
    if type == "manualToolInvoke":
        tool = _find_tool(host, str(data.get("toolName")))
        return data if tool is None else {**data, "args": tool.without_secrets(data.get("args"))}
    if type == "approvalResponse" and isinstance(args := data.get("args"), Mapping):
        question = host.ui.open_question(str(data.get("requestId")))
        fields = (question.wire.get("fields") or ()) if question is not None else ()
        return {**data, "args": mask_secrets(fields, args)}
    if type == "command" and isinstance(text := data.get("text"), str):
        return {**data, "text": _concealed_command(host, text)}
    return data


def _concealed_command(host: ActionHost, text: str) -> str:
    if not is_command(text):
        return _MISTYPED
    if shell_command(text):
        return text  # as `/exec_command --cmd …`, whose command is no secret field
    closed = True
    try:
        name, *words = tokenize(text, 1)
    except CommandError:  # a quote that is not closed: what it holds stands in the line all the same
        closed = False
        name, *words = (OptionToken(word) for word in text[1:].split())
    runner, prompt = name.text, None
    if runner.lower() in TOOL_RUNNERS and words:
        name, *words = words
        typed = f"/{runner} {unknown_name(name.text)}"
    elif runner.lower() in BUILT_IN_NAMES:
        return text
    else:
        typed, prompt = f"/{unknown_name(runner)}", find_prompt(host, runner)
    if prompt is not None:
        secrets = [each for each in prompt.fields if each["type"] == "secret"]
        hidden = _why_hidden(dict(prompt.schema), secrets, words if closed else None)
    elif (tool := _find_tool(host, name.text)) is not None:
        hidden = _why_hidden(tool.input_schema, tool.secret_fields, words if closed else None)
    else:
        hidden = _MISTYPED if words or not text.endswith(typed) else ""
    return f"{typed} {hidden}" if hidden else text


def _why_hidden(
    schema: dict[str, Any], secrets: Sequence[Mapping[str, Any]], words: Sequence[OptionToken] | None
) -> str:
    """Why these words, typed for a tool or a prompt, are not recorded; empty: they are. None: they cannot be read."""
    try:
        given = bind_partial(schema, words).args if words is not None else None
    except BindingError:
        given = None
    if given is None:
        takes_secrets = bool(secrets) or _names_credential(schema.get("properties") or ())
        return _NOT_RECORDED if takes_secrets else _MISTYPED
    return _NOT_RECORDED if _names_credential(given) or mask_secrets(secrets, given) != given else ""


def _names_credential(names: Iterable[str]) -> bool:
    return any(classify_name(name) != NO_CREDENTIAL for name in names)


def _find_tool(host: ActionHost, typed: str) -> Tool | None:
    catalog = host.path.catalog
    name = find_name(typed, callable_names([*catalog, *catalog.hidden_tools()])) or typed
    return catalog.get(catalog.aliases().get(name, name))
