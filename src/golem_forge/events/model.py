"""Every event type: one class each, with snake_case attributes in Python and camelCase names on the wire.

Display events go from the runtime to its UIs, action events from a UI to the runtime. Nested values are plain mappings
with wire names. Actions may hold raw secrets, so the bus hands out redacted copies of them.

`EventData` makes its subclasses frozen, keyword-only records (for type checkers: dataclasses). It replaces `@dataclass`
because compiling 38 of those costs more at start-up than the rest of the package. A field without a default is
required, also when its value may be None; a field that defaults to None is optional and is left out of the wire while
it is None. A field with `emit_default` is always on the wire, but an emitter may leave it out. `to_wire(data)` gives
the camelCase mapping, `from_wire(type, mapping)` the typed object; `from_wire` ignores unknown fields and raises
ValueError for missing ones. An emitter's values are checked against the annotations as far as these are plain: `str`,
`bool`, `int`, `float`, `Json`, `list[…]` and `Literal[…]`, each also `| None`. Any other annotation is not checked.
"""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, dataclass_transform

from golem_forge.core.ids import new_id
from golem_forge.core.options import camel, unknown_name_message

_MISSING: Any = object()
_PLAIN_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "list": ((list, tuple), "a list"),
    "Json": ((dict, Mapping), "an object"),
    "dict": ((dict, Mapping), "an object"),
}


class EventField(NamedTuple):
    attribute: str
    wire: str
    required: bool


class AllowedValues(NamedTuple):
    """What a field may hold."""

    passes: frozenset[Any]
    """Types, and the words of a closed set: whose exact type or whose text is here needs no second look."""
    types: tuple[type, ...]
    words: str
    members: Mapping[str, AllowedValues]

    def problem(self, value: Any) -> str:
        """Empty: it may be this value. Threat: the value itself may be a secret, only a closed set's is repeated."""
        if type(value) in self.passes or (isinstance(value, str) and value in self.passes):
            return ""
        if not isinstance(value, self.types):
            shown = repr(value)[:60] if isinstance(value, str) and not self.types else type(value).__name__
            return f"is {self.words}, not {shown}"
        for name, allowed in self.members.items():
            if not isinstance(value, Mapping) or name not in value:
                return f"has no {name!r}; it is {self.words}"
            if problem := allowed.problem(value[name]):
                return f"has a {name!r} that {problem}"
        return ""


class _Everything(frozenset[Any]):
    def __contains__(self, value: object) -> bool:
        return True


ANYTHING = AllowedValues(_Everything(), (), "anything", {})


class _EmitDefault(NamedTuple):
    make: Callable[[], Any]


def emit_default(make: Callable[[], Any]) -> Any:
    """The default of a field that whoever emits may leave out: `make()` gives its value then."""
    return _EmitDefault(make)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class EventData:
    """What one event says. Subclasses list fields and give their wire name as `type=`.

    An event of somebody else may leave it out: its class name is the wire name, first letter lowered."""

    TYPE: ClassVar[str]
    FIELDS: ClassVar[tuple[EventField, ...]]
    REQUIRED: ClassVar[frozenset[str]]
    """The wire names that must be present."""
    SPELLINGS: ClassVar[Mapping[str, str]]
    """Wire names and attributes → wire names: what an emitter may write."""
    FILLED: ClassVar[Mapping[str, Callable[[], Any]]]
    """Wire name → the value of a required field that the emitter left out."""
    RECORDED: ClassVar[bool]
    """Whether the journal keeps it. The others carry the number of the last recorded event."""
    ACTION: ClassVar[bool]
    """Whether it goes from a UI to the runtime."""
    MEMBERS: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Attribute → the members an object there must have, with their annotations."""
    ALLOWED: ClassVar[Mapping[str, AllowedValues] | None] = None
    """By wire name; worked out when the first one is emitted."""

    def __init_subclass__(cls, *, type: str = "", recorded: bool = True, action: bool = False) -> None:
        names = inspect.get_annotations(cls)
        cls.TYPE = type or cls.__name__[0].lower() + cls.__name__[1:]
        defaults = {name: cls.__dict__.get(name, _MISSING) for name in names}
        cls.FILLED = {camel(name): value.make for name, value in defaults.items() if isinstance(value, _EmitDefault)}
        cls.FIELDS = tuple(
            EventField(name, camel(name), value is _MISSING or isinstance(value, _EmitDefault))
            for name, value in defaults.items()
        )
        cls.SPELLINGS = {spelled: field.wire for field in cls.FIELDS for spelled in (field.attribute, field.wire)}
        cls.REQUIRED = frozenset(field.wire for field in cls.FIELDS if field.required)
        cls.RECORDED = recorded
        cls.ACTION = action
        REGISTRY[cls.TYPE] = cls

    def __init__(self, **values: Any) -> None:
        state = self.__dict__
        for name, wire, required in self.FIELDS:
            value = values.pop(name, _MISSING)
            if value is _MISSING:
                if required and wire not in self.FILLED:
                    raise TypeError(f"event {self.TYPE!r}: required field {wire!r} is missing")
                value = self.FILLED[wire]() if required else None
            state[name] = value
        if values:
            raise TypeError(f"event {self.TYPE!r} has no field {next(iter(values))!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"event {self.TYPE!r} cannot be changed: every subscriber reads the same object")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = self.TYPE[0].upper() + self.TYPE[1:]
        return f"{shown}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


REGISTRY: dict[str, type[EventData]] = {}
"""Every event type by its wire name; `EventData` adds each subclass."""


def to_wire(data: EventData) -> dict[str, Any]:
    state = data.__dict__
    return {wire: state[name] for name, wire, required in data.FIELDS if required or state[name] is not None}


def refuse_missing(kind: type[EventData], wire: Mapping[str, Any]) -> None:
    for field in kind.FIELDS:
        if field.required and field.wire not in wire:
            raise ValueError(f"event {kind.TYPE!r}: required field {field.wire!r} is missing")


def allowed_values(kind: type[EventData]) -> Mapping[str, AllowedValues]:
    if kind.ALLOWED is None:
        annotations = inspect.get_annotations(kind)
        kind.ALLOWED = {camel(name): _allowed_for(each, kind.MEMBERS.get(name)) for name, each in annotations.items()}
    return kind.ALLOWED


def _allowed_for(annotation: Any, members: Mapping[str, str] | None = None) -> AllowedValues:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")
    plain = text.removesuffix(" | None")
    none = frozenset([type(None)]) if plain != text else frozenset()
    if plain.startswith("Literal["):
        values = literal_eval(plain.removeprefix("Literal"))
        return AllowedValues(none.union(values), (), f"one of {', '.join(map(repr, values))}", {})
    types, words = _PLAIN_TYPES.get(plain.partition("[")[0], ((), ""))
    if not types:
        return ANYTHING
    within = {name: _allowed_for(each) for name, each in (members or {}).items()}
    if within:
        words = f"{words} {{{', '.join(within)}}}"
    return AllowedValues(none if within else none.union(types), types, words, within)


def make_quick_check(kind: type[EventData]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the required fields hold what they may, at a glance: False is no verdict. KeyError: one is missing."""
    tests = tuple((name, allowed_values(kind)[name].passes) for name in sorted(kind.REQUIRED))

    def fits(data: Mapping[str, Any]) -> bool:
        for name, passes in tests:
            value = data[name]
            if type(value) not in passes and not (type(value) is str and value in passes):
                return False
        return True

    return fits


def wire_type_name(name: str) -> str:
    """The wire name of an event type, spelled so or in snake_case. ValueError: there is none such."""
    wire = name if name in REGISTRY else camel(name)
    if wire not in REGISTRY:
        raise ValueError(unknown_name_message("there is no event", name, REGISTRY))
    return wire


def complete_fields(kind: type[EventData], data: Mapping[str, Any] | object) -> dict[str, Any]:
    """What an emitter wrote, by wire names and with nothing left out. ValueError: unknown, given twice or missing.
    TypeError: no mapping."""
    if not isinstance(data, Mapping):
        shape = ", ".join(field.wire for field in kind.FIELDS if field.wire in kind.REQUIRED - kind.FILLED.keys())
        raise TypeError(
            f"event {kind.TYPE!r} takes a mapping of its fields, {{{shape or '…'}}}, not {type(data).__name__}"
        )
    wire: dict[str, Any] = {}
    for spelled, value in data.items():
        name = kind.SPELLINGS.get(spelled)
        if name is None:
            fields = [field.wire for field in kind.FIELDS]
            raise ValueError(f"event {kind.TYPE!r}: {unknown_name_message('there is no field', spelled, fields)}")
        if name in wire:
            raise ValueError(f"event {kind.TYPE!r}: field {name!r} is given twice")
        wire[name] = value
    for name, make in kind.FILLED.items():
        if name not in wire:
            wire[name] = make()
    refuse_missing(kind, wire)
    return wire


def check_fields(kind: type[EventData], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """As `emitted`, and refuses (ValueError) a value that its field cannot hold."""
    wire = complete_fields(kind, data)
    allowed = allowed_values(kind)
    for name, value in wire.items():
        if problem := allowed[name].problem(value):
            raise ValueError(f"event {kind.TYPE!r}: field {name!r} {problem}")
    return wire


def from_wire(type_name: str, wire: Mapping[str, Any]) -> EventData:
    kind = REGISTRY.get(type_name)
    if kind is None:
        raise ValueError(f"unknown event type {type_name!r}")
    refuse_missing(kind, wire)
    return kind(**{name: wire[key] for name, key, _ in kind.FIELDS if key in wire})


Json = dict[str, Any]


class SessionStarted(EventData, type="sessionStarted"):
    worker: str
    model: str
    mode: str
    approval_mode: str
    zones: list[Json]
    """`{name, mode}` each."""
    resumed: bool


class Message(EventData, type="message"):
    message: Json
    """`{role, content, by?, timestamp?, attachments?}`; `by`: the person who said it, where several may."""
    MEMBERS = MappingProxyType({"message": {"role": "Literal['user', 'assistant', 'system']", "content": "str"}})


class Streaming(EventData, type="streaming", recorded=False):
    request_id: str
    delta: str
    done: bool = emit_default(bool)
    channel: Literal["text", "thinking"] = emit_default(lambda: "text")
    discarded: bool | None = None
    whole: str | None = None
    """Replaces everything shown for this id so far."""


class StatusEvent(EventData, type="status"):
    type: Literal["info", "warning", "error"]
    message: str
    code: str | None = None
    mode: str | None = None
    """With the code APPROVAL_MODE: the approval mode from now on."""


class ToolStarted(EventData, type="toolStarted"):
    tool_call_id: str
    tool_name: str
    args: Any = emit_default(dict)
    caller: str = emit_default(lambda: "llm")
    label: str | None = None
    worker_id: str | None = None
    parent_call_id: str | None = None


class ToolProgress(EventData, type="toolProgress", recorded=False):
    tool_call_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class ToolOutput(EventData, type="toolOutput", recorded=False):
    tool_call_id: str
    stream: Literal["stdout", "stderr"] = emit_default(lambda: "stdout")
    delta: str
    whole: str | None = None


class ToolResultEvent(EventData, type="toolResult"):
    tool_call_id: str
    tool_name: str
    args: Any = emit_default(dict)
    status: Literal[
        "success",
        "execution_failed",
        "input_invalid",
        "tool_not_found",
        "approval_denied",
        "policy_denied",
        "sandbox_denied",
        "timeout",
        "interrupted",
        "skipped",
    ]
    duration_ms: float = emit_default(int)
    decision: Json | None = emit_default(lambda: None)
    """None for a call that was never judged (unknown tool, invalid arguments)."""
    truncated: bool = emit_default(bool)
    value: Json | None = None
    error: str | None = None
    output_handle: str | None = None
    denials: list[Json] | None = None
    protected_created: list[str] | None = None
    leftovers: list[Json] | None = None
    """`{kind, severity, text, paths}` each; severity is `note`, `warning` or `critical`."""
    media: list[Json] | None = None
    """`{handle, mediaType, size, width?, height?}` each: the pictures, sounds and files of the result."""


class WorkerUpdate(EventData, type="workerUpdate"):
    worker_id: str
    name: str
    task: str = emit_default(str)
    status: Literal["pending", "running", "complete", "error"]
    depth: int = emit_default(int)
    parent_id: str | None = None
    model: str | None = None
    tools: Any = None


class ApprovalRequired(EventData, type="approvalRequired"):
    request_id: str
    type: Literal["tool_call", "file_write", "command", "worker", "trust", "definition", "sampling"]
    description: str = emit_default(str)
    tool: str = emit_default(str)
    args: Any = emit_default(dict)
    payload: Any = emit_default(str)
    effects: list[Any] = emit_default(list)
    risk: Literal["low", "medium", "high", "critical"] = emit_default(lambda: "high")
    """Left out: of what nothing is known."""
    risk_reasons: list[str] = emit_default(list)
    why: Any = emit_default(str)
    choices: list[Json] = emit_default(list)
    """`{id, label, scope, rule?, file?, suggested?}` each, narrow to wide; a UI shows the suggested one first."""
    fingerprint: str = emit_default(str)
    args_key: str = emit_default(str)
    previously_denied: int = emit_default(int)
    waiting: int = emit_default(lambda: 1)
    warnings: list[str] = emit_default(list)
    worker_path: list[Json] = emit_default(list)
    """`{id, name, depth, task}` each, root first."""
    tool_call_id: str | None = None
    diff: str | None = None
    segments: list[Any] | None = None
    changed: Any = None
    model_note: str | None = None
    expires_at: str | None = None
    fields: list[Json] | None = None
    caller: str | None = None
    """`human` for a call that a person made; no model waits for a reason."""


class ApprovalResolved(EventData, type="approvalResolved"):
    request_id: str
    approved: bool
    by: str = emit_default(lambda: "ui")
    """A UI's id, or `memory`, `mode`, `timeout`, `interrupt`."""
    edited: bool = emit_default(bool)
    choice: str | None = None
    reason: str | None = None


class FormRequired(EventData, type="formRequired"):
    request_id: str
    source: str = emit_default(str)
    title: str = emit_default(str)
    message: str = emit_default(str)
    fields: list[Json]
    worker_path: list[Json] = emit_default(list)
    url: str | None = None
    accept: str | None = None
    """Of a form without fields: what accepting means, in words; it is a choice of two then."""
    decline: str | None = None


class FormResolved(EventData, type="formResolved"):
    request_id: str
    action: Literal["accept", "decline", "cancel"]


class InputPrompt(EventData, type="inputPrompt"):
    request_id: str
    prompt: str


class InputResolved(EventData, type="inputResolved"):
    request_id: str


class ManualToolsAvailable(EventData, type="manualToolsAvailable"):
    tools: list[Json]
    """`{name, label, description, category?, fields}` each."""


class DiffSummary(EventData, type="diffSummary"):
    request_id: str
    summaries: list[Json]
    """`{path, operation, additions, deletions}` each; −1 where a count is unknown."""


class DiffContent(EventData, type="diffContent"):
    request_id: str
    path: str
    modified: str
    is_new: bool = emit_default(bool)
    original: str | None = None


class FilesChanged(EventData, type="filesChanged"):
    """What a call changed in the zones; the whole is in the session's change log."""

    call_id: str
    tool: str
    turn: int
    """Which message of the person it belongs to; 0: none, the person called the tool."""
    files: list[Json]
    """`{path, verb, added?, removed?, selected}` each, 200 at most; `selected`: undo takes it back by itself."""
    count: int
    """How many there are."""
    added: int
    removed: int
    log_hash: str
    """The hash of its line in the change log."""
    undoes: list[str] | None = None
    """The calls that this one took back."""
    problem: str | None = None
    """Why some changes may be missing."""
    remade: list[str] | None = None
    """Directories that a tool can make again and in which the call changed something; undo leaves them."""
    reached: list[str] | None = None
    """Hosts that the call could reach; what was sent there stays sent."""
    undoable: bool | None = None
    """False: there is nothing in it that undo could take back."""


class HookRan(EventData, type="hookRan"):
    hook: str
    """Its name."""
    on: str
    """The point: `before_call`, `after_call`, `session_start`, …"""
    status: Literal["ok", "said", "failed"]
    duration_ms: float = emit_default(int)
    tool_call_id: str | None = None
    exit_code: int | None = None
    line: str | None = None
    """What the person should read of it; None: nothing."""
    verdict: str | None = None
    reason: str | None = None
    told: str | None = None
    """What it told the model."""


class Reviewed(EventData, type="reviewed"):
    reviewer: str
    answer: Literal["approve", "deny", "unsure"]
    reason: str | None = None
    tool_call_id: str | None = None
    duration_ms: float = emit_default(int)


class Rewound(EventData, type="rewound"):
    """The person went back to an earlier message of theirs."""

    turn: int
    """Which of their messages, counted from 1; it stands in the input line again."""
    message: str
    """Its beginning."""
    conversation: bool
    """Whether the history ends before it now."""
    files: bool
    """Whether what was changed since was undone."""


class PlanUpdated(EventData, type="planUpdated"):
    plan: list[Json]
    """`{step, status}` each; status is `pending`, `in_progress` or `completed`."""
    explanation: str | None = None


class ContextUsage(EventData, type="contextUsage"):
    tokens_used: int
    token_limit: int
    exceeded: bool


class ContextCompacted(EventData, type="contextCompacted"):
    before: int
    after: int


class UsageUpdated(EventData, type="usageUpdated"):
    request_id: str
    worker_id: str
    input: int
    output: int
    cached: int
    cost: float | None
    """None where the price of the model is not known."""
    session: Json
    worker: Json | None = None
    """The sums of this worker and those below it; `session` those of everybody."""


class CatalogChanged(EventData, type="catalogChanged"):
    added: list[Any]
    changed: list[Any]
    removed: list[Any]
    diagnostics: list[Any]


class McpStatus(EventData, type="mcpStatus"):
    server: str
    state: str
    tools: Any
    error: str | None = None
    retry_at: str | None = None


class ToolSuggested(EventData, type="toolSuggested"):
    sequence: list[Any]
    occurrences: int
    parameters: Any


class WallsReport(EventData, type="wallsReport"):
    level: str
    guarantees: list[str]
    missing: list[str]
    cause: str | None = None
    fix: str | None = None
    exits: list[str] | None = None
    """What the person's own config opens in these walls: `device nvidia`, `socket /run/docker.sock`."""


class ServiceReached(EventData, type="serviceReached"):
    """A call opened a connection to a service of the machine that the session runs on."""

    tool_call_id: str
    target: str
    """`localhost:5432`"""
    last: bool | None = None
    """Further connections of this call are not written down."""


class CredentialUsed(EventData, type="credentialUsed"):
    """A command is about to use a credential at the proxy: never its value."""

    tool_call_id: str
    variable: str
    host: str
    method: str
    path: str


class SessionEnd(EventData, type="sessionEnd"):
    reason: Literal["completed", "error", "interrupted"]
    message: str | None = None


class RunResultEvent(EventData, type="runResult"):
    success: bool
    status: str
    response: str
    usage: Any
    partial: str | None = None
    error: str | None = None
    """Why there is no answer, as standard error says it."""
    warning: str | None = None
    """What is odd about the answer that there is, as standard error says it."""


class UserInput(EventData, type="userInput", action=True):
    request_id: str
    content: str
    attachments: list[Json] | None = None
    """`{digest, name}` of files that were sent before."""


class ApprovalResponse(EventData, type="approvalResponse", action=True):
    request_id: str
    approved: bool
    choice: str | None = None
    args: Json | None = None
    """The arguments as the person edited them."""
    reason: str | None = None
    stop: bool | None = None
    """Deny and end the turn."""
    remember: Literal["session", "always"] | None = None
    """Instead of `choice`: the narrowest offered choice of this scope."""


class FormResponse(EventData, type="formResponse", action=True):
    request_id: str
    action: Literal["accept", "decline", "cancel"]
    values: Json | None = None


class ManualToolInvoke(EventData, type="manualToolInvoke", action=True):
    tool_name: str
    args: Json = emit_default(dict)
    request_id: str | None = None
    """Of the sender's choice: 32 random hexadecimal digits become the id of the call, and run it once however often it
    is sent."""


class Command(EventData, type="command", action=True):
    request_id: str = emit_default(new_id)
    text: str


class Interrupt(EventData, type="interrupt", action=True):
    reason: str | None = None
    worker_id: str | None = None
    """Only that worker's branch; absent: everything."""


class GetDiff(EventData, type="getDiff", action=True):
    request_id: str
    path: str
