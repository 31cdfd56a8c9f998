"""Settings of a running session: approval mode, usage and budget, context, zones, walls, and every configuration value
with its origin. What `/status` and `/config` say, as data.

Only the approval mode can be changed, for the rest of this session; every watcher is told, and the journal records it.
`blocked` stays blocked in every mode.
"""

from __future__ import annotations

from typing import Any, Final

from golem_forge.agent.in_force import effective_config, is_untrusted
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.core.text import display_path
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import RequestedSession, operation
from golem_forge.ui.web.stream.watched_session import UI_NAME, SessionStatus
from golem_forge.ui.web.wire import ApiModel

_MODE_MEANINGS: Final = {
    ApprovalMode.INTERACTIVE: "What asks is asked here, unless it was remembered.",
    ApprovalMode.STRICT: "Everything that touches anything asks; rules in files allow nothing.",
    ApprovalMode.APPROVE_ALL: "What would ask runs without a question. What is blocked stays blocked.",
    ApprovalMode.AUTO_DENY: "What would ask is denied without a question, unless it was remembered.",
}
_BUDGET_UNITS: Final = {
    "max_cost_usd": "USD",
    "max_tokens": "tokens",
    "max_requests": "requests",
    "max_tool_calls": "calls",
    "max_seconds": "seconds",
}


class ModeShown(ApiModel, title="ModeShown"):
    mode: str
    meaning: str


class UsageShown(ApiModel, title="UsageShown"):
    input: int
    output: int
    cached: int
    cost: float | None
    """In USD; null: not known."""
    requests: int


class BudgetShown(ApiModel, title="BudgetShown"):
    limit: str
    """`max_tokens` …, as forge.yaml calls it."""
    unit: str
    allowed: float | None
    """null: no limit of this kind."""
    used: float


class ContextShown(ApiModel, title="ContextShown"):
    used: int
    limit: int
    """0: not known."""


class ZoneShown(ApiModel, title="ZoneShown"):
    name: str
    mode: str


class ConfigShown(ApiModel, title="ConfigShown"):
    key: str
    value: str
    origin: str
    """`forge.yaml:7`, `default` …"""


class Settings(ApiModel, title="Settings"):
    state: str = SessionStatus.LIVE.value
    worker: str
    model: str
    """Empty: none."""
    workers: list[str]
    """Every worker that can run here, the root first."""
    approval_mode: str
    modes: list[ModeShown]
    pending: int
    """Calls that wait for an answer."""
    usage: UsageShown
    budget: list[BudgetShown]
    """Of the whole session."""
    context: ContextShown
    zones: list[ZoneShown]
    walls: dict[str, Any] | None
    """As the event wallsReport says it; null: nothing had to be started yet."""
    program: str
    """Its directory, as the person knows it."""
    trusted: bool
    """Whether the program is; if not, what it may not say does not count."""
    unused: list[str]
    """What of its file does not count."""
    config: list[ConfigShown]


class SettingsChange(ApiModel, title="Change"):
    approval_mode: ApprovalMode


@operation("GET", "/api/sessions/{id}/settings", "show_settings", tag="settings")
async def show_settings(subject: RequestedSession) -> Settings:
    """How this session runs, and where each value comes from. Only of a session that runs here."""
    return await _settings_of(subject, subject.live_runtime)


@operation(
    "PATCH",
    "/api/sessions/{id}/settings",
    "change_settings",
    tag="settings",
    refusals={409: "it does not run here, or nobody can be asked in it"},
)
async def change_settings(subject: RequestedSession, body: SettingsChange) -> Settings:
    """Another approval mode for the rest of this session. What waits for an answer goes on waiting for it."""
    subject.live_runtime.switch_approval(body.approval_mode, UI_NAME)
    return await _settings_of(subject, subject.live_runtime)


async def _settings_of(subject: RequestedSession, runtime: WorkerRuntime) -> Settings:
    config = await run_in_thread(lambda: effective_config(runtime))
    sandbox = runtime.path.sandbox
    zones = sandbox.zones.values() if sandbox is not None else ()
    report = runtime.walls.known_report
    found = {
        "worker": runtime.worker.name,
        "model": runtime.model_name,
        "workers": [each.name for each in runtime.workers],
        "approval_mode": runtime.controller.mode.value,
        "modes": [{"mode": mode.value, "meaning": meaning} for mode, meaning in _MODE_MEANINGS.items()],
        "pending": runtime.controller.pending,
        "usage": runtime.meter.sums() | {"requests": runtime.meter.requests},
        "budget": [
            {"limit": name, "unit": _BUDGET_UNITS[name], "allowed": allowed, "used": used}
            for name, (allowed, used) in runtime.budget.limits_and_usage().items()
        ],
        "context": {"used": runtime.context_used, "limit": runtime.context_limit},
        "zones": [{"name": zone.name, "mode": zone.mode.value} for zone in zones],
        "walls": report.to_wire() if report is not None else None,
        "trusted": not is_untrusted(runtime),
        "unused": runtime.program.unused,
        "config": [row._asdict() for row in config],
    }
    return Settings.model_validate(subject.redact(found) | {"program": display_path(str(runtime.program.root))})
