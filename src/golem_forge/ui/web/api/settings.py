"""Settings of a running session: approval mode, usage and budget, context, zones, walls, and every value of the
configuration with its origin. What `/status` and `/config` say, as data.

One thing can be changed: the approval mode, for the rest of this session, by the person at the page; it is told to
everybody who watches and stands in the journal. `blocked` stays blocked in every mode. Files are theirs to edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.modes import ApprovalMode
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.api.subject import Subject, subject_of
from golem_forge.ui.web.watching.session import SessionState
from golem_forge.ui.web.wire import Model

if TYPE_CHECKING:
    from golem_forge.workers.runtime import WorkerRuntime

_WHO: Final = "browser"
_MEANING: Final = {
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


class ModeShown(Model, title="ModeShown"):
    mode: str
    meaning: str


class UsageShown(Model, title="UsageShown"):
    input: int
    output: int
    cached: int
    cost: float | None
    """In USD; null: not known."""
    requests: int


class BudgetShown(Model, title="BudgetShown"):
    limit: str
    """`max_tokens` …, as forge.yaml calls it."""
    unit: str
    allowed: float | None
    """null: no limit of this kind."""
    used: float


class ContextShown(Model, title="ContextShown"):
    used: int
    limit: int
    """0: not known."""


class ZoneShown(Model, title="ZoneShown"):
    name: str
    mode: str


class ConfigShown(Model, title="ConfigShown"):
    key: str
    value: str
    origin: str
    """`forge.yaml:7`, `default` …"""


class Settings(Model, title="Settings"):
    state: str = SessionState.LIVE.value
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


class Change(Model, title="Change"):
    approval_mode: ApprovalMode


@operation("GET", "/api/sessions/{id}/settings", "show_settings", answer=Settings, tag="settings")
async def show_settings(call: Call) -> Settings:
    """How this session runs, and where each value comes from. Only of a session that runs here."""
    subject = await subject_of(call)
    return await _shown(subject, subject.live)


@operation(
    "PATCH",
    "/api/sessions/{id}/settings",
    "change_settings",
    body=Change,
    answer=Settings,
    tag="settings",
    refusals={409: "it does not run here, or nobody can be asked in it"},
)
async def change_settings(call: Call) -> Settings:
    """Another approval mode for the rest of this session. What waits for an answer goes on waiting for it."""
    subject = await subject_of(call)
    subject.live.switch_approval(call.body.approval_mode, _WHO)
    return await _shown(subject, subject.live)


async def _shown(subject: Subject, runtime: WorkerRuntime) -> Settings:
    from golem_forge.core.homely import homely
    from golem_forge.workers.config_in_force import config_in_force, is_stranger

    config = await run_in_thread(lambda: config_in_force(runtime))
    sandbox = runtime.path.sandbox
    zones = sandbox.zones.values() if sandbox is not None else ()
    report = runtime.walls.known_report
    told = {
        "worker": runtime.worker.name,
        "model": runtime.model_name,
        "workers": [each.name for each in runtime.workers],
        "approval_mode": runtime.controller.mode.value,
        "modes": [{"mode": mode.value, "meaning": meaning} for mode, meaning in _MEANING.items()],
        "pending": runtime.controller.pending,
        "usage": runtime.meter.sums() | {"requests": runtime.meter.requests},
        "budget": [
            {"limit": name, "unit": _BUDGET_UNITS[name], "allowed": allowed, "used": used}
            for name, (allowed, used) in runtime.budget.standing().items()
        ],
        "context": {"used": runtime.context_used, "limit": runtime.context_limit},
        "zones": [{"name": zone.name, "mode": zone.mode.value} for zone in zones],
        "walls": report.to_wire() if report is not None else None,
        "trusted": not is_stranger(runtime),
        "unused": runtime.program.unused,
        "config": [row._asdict() for row in config],
    }
    return Settings.model_validate(subject.fit(told) | {"program": homely(str(runtime.program.root))})
