"""What is in force in a session, and changing it: approval mode, rules and approvals, usage and budget, context, zones,
walls, and every configuration value with its origin. What `/status`, `/config` and `/rules` say, as data.

Of a running session only the approval mode can be changed, for the rest of it; every watcher is told, and the journal
records it. `blocked` stays blocked in every mode. A permission can be revoked as by `forge rules revoke`; a rule
written by hand is pointed to, never rewritten. Explaining how a call would be judged runs nothing, asks nobody and
records nothing.

The model of the person is set up here too, as by `forge models setup`: which keys and local servers there are, what a
provider offers, one test request, and the choice saved. A key goes in and never comes out again. Threat: whoever is on
the page could have keys and requests sent about, so a request names a provider and never an address of its own: local
servers are those that Forge found. Requests to providers are bounded per minute.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from dataclasses import asdict
from typing import Any, Final, Literal

from pydantic import Field, SecretStr, model_validator

from golem_forge.agent import in_force
from golem_forge.agent.explain import (
    DryEvaluator,
    evaluator_for,
    explanation_json,
    open_evaluator,
    plan_for_explain,
)
from golem_forge.agent.in_force import effective_config, is_untrusted
from golem_forge.agent.model import setup
from golem_forge.agent.model.selection import NO_SETTINGS, ModelKeys, split_model
from golem_forge.agent.model.setup import find_local_servers
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.config.run_block import MODE_MEANINGS, ApprovalMode
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import display_path
from golem_forge.policy.rules.book import rule_usage
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ActionResult, ApiModel, ApiRefusal
from golem_forge.ui.web.api.operation import ApiCall, RequestedSession, operation
from golem_forge.ui.web.stream.watched_session import UI_NAME, SessionStatus

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
    prices: str = ""
    """Where prices come from that the person did not write: `local`, `as of 2026-10-14`."""
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
        "modes": [{"mode": mode.value, "meaning": meaning} for mode, meaning in MODE_MEANINGS.items()],
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


_MAX_KEY: Final = 4096
_MAX_NAME: Final = 200
_TRIES_PER_MINUTE: Final = 12


class ProviderShown(ApiModel, title="ProviderShown"):
    name: str
    title: str
    key: str
    """Where its key is: `environment`, `keyring`, `file` or `none`; `not needed` where none is expected."""
    key_page: str
    """Where a person makes a key; empty: nobody knows."""


class LocalServerShown(ApiModel, title="LocalServerShown"):
    title: str
    provider: str
    address: str
    models: list[str]


class ModelSetup(ApiModel, title="ModelSetup"):
    providers: list[ProviderShown]
    """Those that take a key."""
    local: list[LocalServerShown]
    """Model servers found on the usual ports of the machine that serves this page."""


class ModelSource(ApiModel, title="ModelSource"):
    provider: Literal["anthropic", "openai", "google", "openrouter", "ollama", "openai-compatible"]
    address: str = Field(default="", max_length=_MAX_NAME)
    """Of a local server, as `show_models` gave it; empty: the provider's own."""
    key: SecretStr = Field(default=SecretStr(""), max_length=_MAX_KEY)
    """A new key; empty: the one that is there. It is never given back."""


class OfferedModels(ApiModel, title="OfferedModels"):
    models: list[str]
    """Names without the provider, its default first."""


class ModelSettings(ModelSource, title="NewModel"):
    model: str = Field(pattern=r"^[\w.:/@+-]{1,200}$")
    """Its name without the provider."""
    session: str = Field(default="", max_length=_MAX_NAME)
    """A session that runs here and uses it from the next request on; empty: none does."""


class SavedModel(ApiModel, title="SavedModel"):
    model: str
    """`provider:name`, the person's default now."""
    key: str
    """Where a new key was stored: `keyring` or `file`; empty: there was no new one."""


_BUSY: Final = {429: "too many requests to providers within a minute", 409: "the provider refused, or did not answer"}


@operation("GET", "/api/models", "show_models", tag="settings")
async def show_models(call: ApiCall) -> ModelSetup:
    """What a model can be chosen from: providers with the state of their keys, and local servers."""
    home = call.registry.home
    states = await run_in_thread(
        lambda: setup.provider_states(setup.person_settings(home), os.environ, ModelKeys(home))
    )
    local = await run_in_thread(find_local_servers)
    return ModelSetup(
        providers=[
            ProviderShown(
                name=each.name, title=setup.TITLES[each.name], key=each.key, key_page=setup.KEY_PAGES[each.name]
            )
            for each in states
            if each.name in setup.TITLES
        ],
        local=[
            LocalServerShown(title=each.title, provider=each.provider, address=each.base_url, models=list(each.models))
            for each in local
        ],
    )


@operation("POST", "/api/models/offered", "list_offered_models", tag="settings", refusals=_BUSY)
async def list_offered_models(call: ApiCall, body: ModelSource) -> OfferedModels:
    """The models of a provider or a local server. The key is used for this request and not stored."""
    choice = await _choice(body)
    return OfferedModels(models=await setup.list_models(call.registry.home, choice, os.environ))


@operation("POST", "/api/models", "set_model", tag="settings", refusals={**_BUSY, 404: "there is no such session"})
async def set_model(call: ApiCall, body: ModelSettings) -> SavedModel:
    """Tests a model with one small request, then makes it the person's default and stores the key. Nothing is stored if
    the test fails."""
    home = call.registry.home
    runtime = call.registry.live(body.session).runtime if body.session else None
    if runtime is not None and not runtime.is_ready:
        raise ApiRefusal(409, "The session is just being started; try again in a moment.")
    choice = replace(await _choice(body), model=body.model)
    split_model(choice.name)
    await setup.try_choice(home, choice, os.environ)
    place = await run_in_thread(lambda: setup.save_choice(home, choice))
    if runtime is not None:
        _use_in_session(runtime, choice)
    return SavedModel(model=choice.name, key=place)


async def _choice(body: ModelSource) -> setup.ModelChoice:
    """Refused (422): an address at which Forge found no local server; (429): too many."""
    _count_try()
    if body.address:
        local = await run_in_thread(find_local_servers)
        if (body.provider, body.address) not in {(each.provider, each.base_url) for each in local}:
            raise ApiRefusal(422, "No model server was found there.", {"address": "not a local server that was found"})
    return setup.ModelChoice(provider=body.provider, base_url=body.address, key=body.key.get_secret_value())


_tries: deque[float] = deque(maxlen=_TRIES_PER_MINUTE)


def _count_try() -> None:
    now = time.monotonic()
    if len(_tries) == _TRIES_PER_MINUTE and now - _tries[0] < 60:
        raise ApiRefusal(429, "Too many tries; wait a minute.")
    _tries.append(now)


def _use_in_session(runtime: WorkerRuntime, choice: setup.ModelChoice) -> None:
    """The session was started before the address was known."""
    run, models = runtime.program.run, dict(runtime.program.run.models)
    if choice.base_url and not models.get(choice.provider, NO_SETTINGS).base_url:
        models[choice.provider] = replace(models.get(choice.provider, NO_SETTINGS), base_url=choice.base_url)
        runtime.tree.use_program(replace(runtime.program, run=replace(run, models=models)))
    runtime.switch_model(choice.name)
    text = f"Model: {choice.name}, from the next request on."
    runtime.bus.emit("status", {"type": "info", "message": text, "code": "MODEL_CHANGED"})


_MAX_ID: Final = 128
_MAX_COMMAND: Final = 65_536


class RuleShown(ApiModel, title="RuleShown"):
    id: str
    verdict: str
    what: str
    kept_in: str
    """`~/.forge/rules.yaml:3`, or `this session`."""
    scope: str
    reason: str
    origin: str
    """`builtin`, `user`, `remembered`, `project` or `session`."""
    hits: int
    last_used: str | None
    """ISO time; null: no call met it yet."""
    inactive: str
    """Why it does not act; empty if it does."""
    revocable: bool


class ApprovalShown(ApiModel, title="ApprovalShown"):
    """What was allowed for the rest of this session: one exact call, or something one worker may do."""

    id: str
    what: str
    worker: str
    """Empty: an exact call."""


class RuleList(ApiModel, title="RuleList"):
    rules: list[RuleShown]
    approvals: list[ApprovalShown]
    notices: list[str]
    """What a person must know: project rules that are there and do not count."""


class ExplainRequest(ApiModel, title="Wondered"):
    """Either a tool and its arguments, or the text of a command."""

    tool: str = Field(default="", max_length=500)
    args: dict[str, Any] = Field(default_factory=dict)
    command: str = Field(default="", max_length=_MAX_COMMAND)

    @model_validator(mode="after")
    def _one_of_both(self) -> ExplainRequest:
        if bool(self.tool) == bool(self.command):
            raise ValueError("give either tool and args, or command")
        return self


class ExplainAnswer(ApiModel, title="Explanation"):
    tool: str
    args: dict[str, Any]
    worker: str
    mode: str
    verdict: str | None
    """null: there is nothing to judge, `error` says why."""
    then: str = ""
    """What would become of the call, in a sentence."""
    effects: list[dict[str, Any]] | None = None
    """null: the tool does not say what it touches."""
    segments: list[dict[str, Any]] = Field(default_factory=list)
    decision: dict[str, Any] | None = None
    status: str = ""
    code: str = ""
    error: str = ""
    notices: list[str] = Field(default_factory=list)


@operation("GET", "/api/sessions/{id}/rules", "list_rules", tag="rules")
async def list_rules(subject: RequestedSession) -> RuleList:
    """Every rule with its file, scope and last use, and what was approved for the rest of this session."""
    used = await run_in_thread(lambda: rule_usage(subject.home.path))
    runtime = subject.runtime
    if runtime is not None:
        book, approvals = runtime.rules, in_force.approvals_in_force(runtime)
    else:
        book, approvals = await run_in_thread(lambda: in_force.open_rules(subject.home, subject.root)), ()
    found = {
        "rules": [asdict(rule) | {"last_used": rule.last_used or None} for rule in in_force.rules_in_force(book, used)],
        "approvals": [asdict(approval) for approval in approvals],
        "notices": book.notices,
    }
    return RuleList.model_validate(subject.redact(found))


@operation(
    "DELETE",
    "/api/sessions/{id}/rules/{rule}",
    "revoke_rule",
    tag="rules",
    refusals={404: "nothing with this id is remembered", 409: "somebody wrote it by hand; says where"},
)
async def revoke_rule(subject: RequestedSession, rule: str) -> ActionResult:
    """Takes back a remembered rule, for every session, or an approval of this one. The next such call asks."""
    id_, runtime = rule[:_MAX_ID], subject.runtime
    try:
        if runtime is not None:
            text = in_force.revoke_in_session(runtime, id_)
            runtime.ui.show_status(type="info", message=text, code="REVOKED")
        else:
            home, root = subject.home, subject.root
            text = await run_in_thread(lambda: in_force.revoke_remembered(home, in_force.open_rules(home, root), id_))
    except in_force.NotRevoked as error:
        status = 404 if error.code == in_force.UNKNOWN_ID else 409
        raise ApiRefusal(status, subject.redact(error.message)) from None
    return ActionResult(text=subject.redact(text))


@operation("POST", "/api/sessions/{id}/rules/explain", "explain_call", tag="rules")
async def explain_call(subject: RequestedSession, body: ExplainRequest) -> ExplainAnswer:
    """How a call would be judged now: what it touches, everybody who has a say, and who decides. Nothing is run."""
    if subject.runtime is not None:
        await subject.refresh_tools()
        found = await _explain(evaluator_for(subject.runtime), body)
    else:
        found = await run_in_thread(lambda: asyncio.run(_explain_recorded(subject, body)))
    found["args"] = subject.redactor.value(found["args"])
    return ExplainAnswer.model_validate(subject.redact(found))


async def _explain_recorded(subject: RequestedSession, asked: ExplainRequest) -> dict[str, Any]:
    about = f"{asked.command} {asked.args}"
    async with open_evaluator(plan_for_explain(subject.home, subject.root), about=about) as dry:
        return await _explain(dry, asked)


async def _explain(dry: DryEvaluator, asked: ExplainRequest) -> dict[str, Any]:
    call = dry.command(asked.command) if asked.command else dry.tool_call(asked.tool, asked.args)
    return explanation_json(await call, dry)
