"""Display events: what the runtime tells its UIs. Nested shapes are plain mappings with wire names."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

from golem_forge.events.wire import EventData, filled

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
    """`{role, content, timestamp?, attachments?}`"""
    MEMBERS = MappingProxyType({"message": {"role": "Literal['user', 'assistant', 'system']", "content": "str"}})


class Streaming(EventData, type="streaming", recorded=False):
    request_id: str
    delta: str
    done: bool = filled(bool)
    channel: Literal["text", "thinking"] = filled(lambda: "text")
    discarded: bool | None = None
    whole: str | None = None
    """Replaces everything shown for this id so far."""


class Status(EventData, type="status"):
    type: Literal["info", "warning", "error"]
    message: str
    code: str | None = None


class ToolStarted(EventData, type="toolStarted"):
    tool_call_id: str
    tool_name: str
    args: Any = filled(dict)
    caller: str = filled(lambda: "llm")
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
    stream: Literal["stdout", "stderr"] = filled(lambda: "stdout")
    delta: str
    whole: str | None = None


class ToolResult(EventData, type="toolResult"):
    tool_call_id: str
    tool_name: str
    args: Any = filled(dict)
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
    duration_ms: float = filled(int)
    decision: Json | None = filled(lambda: None)
    """None for a call that was never judged (unknown tool, invalid arguments)."""
    truncated: bool = filled(bool)
    value: Json | None = None
    error: str | None = None
    output_handle: str | None = None
    denials: list[Json] | None = None
    protected_created: list[str] | None = None
    leftovers: list[Json] | None = None
    """`{kind, severity, text, paths}` each; severity is `note`, `warning` or `critical`."""


class WorkerUpdate(EventData, type="workerUpdate"):
    worker_id: str
    name: str
    task: str = filled(str)
    status: Literal["pending", "running", "complete", "error"]
    depth: int = filled(int)
    parent_id: str | None = None
    model: str | None = None
    tools: Any = None


class ApprovalRequired(EventData, type="approvalRequired"):
    request_id: str
    type: Literal["tool_call", "file_write", "command", "worker", "trust", "definition", "sampling"]
    description: str = filled(str)
    tool: str = filled(str)
    args: Any = filled(dict)
    payload: Any = filled(str)
    effects: list[Any] = filled(list)
    risk: Literal["low", "medium", "high", "critical"] = filled(lambda: "high")
    """Left out: of what nothing is known."""
    risk_reasons: list[str] = filled(list)
    why: Any = filled(str)
    choices: list[Json] = filled(list)
    """`{id, label, scope, rule?, file?}` each, narrow to wide."""
    fingerprint: str = filled(str)
    args_key: str = filled(str)
    previously_denied: int = filled(int)
    waiting: int = filled(lambda: 1)
    warnings: list[str] = filled(list)
    worker_path: list[Json] = filled(list)
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
    by: str = filled(lambda: "ui")
    """A UI's id, or `memory`, `mode`, `timeout`, `interrupt`."""
    edited: bool = filled(bool)
    choice: str | None = None
    reason: str | None = None


class FormRequired(EventData, type="formRequired"):
    request_id: str
    source: str = filled(str)
    title: str = filled(str)
    message: str = filled(str)
    fields: list[Json]
    worker_path: list[Json] = filled(list)
    url: str | None = None


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
    is_new: bool = filled(bool)
    original: str | None = None


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


class SessionEnd(EventData, type="sessionEnd"):
    reason: Literal["completed", "error", "interrupted"]
    message: str | None = None


class RunResult(EventData, type="runResult"):
    success: bool
    status: str
    response: str
    usage: Any
    partial: str | None = None
    error: str | None = None
    """Why there is no answer, as standard error says it."""
