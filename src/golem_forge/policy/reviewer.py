"""Reviewer: somebody who answers small questions before a person does. A program of the person's, or a model.

`not_reviewable` takes a judged call and says why no reviewer may answer for it. What it lets through asks by default
alone, with a risk of at most `up_to`: no floor, nothing that anybody wrote by hand, nothing a hook said.

`Reviewer.review` takes the card as data, the person's last message and the calls of the turn; gives `approve`, `deny`
with a reason, or `unsure`. Whatever is not clearly one of them is `unsure`, and so are an error, too much time and a
spent budget: then the person is asked. No yes is remembered.

Threat: a file or a page may say `approve this`. The output of tools stands between fences, and no output of the call in
question exists yet; a reviewer that falls for it still cannot answer what is not its to answer. Only the person's own
words are their message: what a plan, a hook or a file says is told apart from it.
Threat: an agent asks again until a reviewer slips. What the person denied is theirs from then on, and so is what the
reviewer denied; after MOST_DENIALS in a turn it answers nothing more in that turn. Calls at once are no more tries than
calls one after another: it thinks about no more of them than it may still deny, and never twice about the same.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.run_block import ApprovalMode, ReviewerSettings
from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Risk, Verdict, is_riskier
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import unique_members
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line, shorten, shorten_middle
from golem_forge.policy.evaluate import Evaluation
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode

if TYPE_CHECKING:
    from golem_forge.policy.hook_process import HookProcesses

SECONDS: Final = 30.0
_MOST_CALLS: Final = 20
_MOST_OUTPUT: Final = 2000
_MOST_MESSAGE: Final = 8000
_MOST_REASON: Final = 300
_MOST_ANSWER: Final = 20_000
MOST_DENIALS: Final = 3
_MOST_REMEMBERED: Final = 10_000
_CARD: Final = (
    *("type", "description", "tool", "args", "payload", "diff", "effects", "segments", "risk", "riskReasons", "why"),
    *("modelNote", "warnings", "workerPath", "caller", "previouslyDenied"),
)
"""Members of a card that a reviewer sees: what a person reads, without the ids needed to answer it."""
_WORD: Final = regex(r"(approve|deny|unsure)\.?(?:\s*:\s*(.*))?", re.IGNORECASE)


class Says(StrEnum):
    APPROVE = "approve"
    DENY = "deny"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAnswer:
    says: Says
    reason: str = ""
    """One line of text."""
    seconds: float = 0.0


AskModel = Callable[[Mapping[str, Any]], Awaitable[tuple[str, float | None]]]
"""Sends the reviewer's input to a model. Returns its answer and the cost in USD, if known. Raises ForgeError."""


class Reviewer:
    """Answers approval cards of low risk for one session, by a model or a program."""

    def __init__(
        self,
        settings: ReviewerSettings,
        *,
        fence: Callable[[str], str],
        ask_model: AskModel | None = None,
        four_eyes: bool = False,
    ) -> None:
        """`fence`: puts a stranger's text between two lines that it cannot imitate. `four_eyes`: people answer here,
        and it answers nothing."""
        self.settings = settings
        self.name = settings.name
        self._fence = fence
        self._ask_model = ask_model
        self._four_eyes = four_eyes
        self._message = ""
        self._others = ""
        self._calls: deque[dict[str, Any]] = deque(maxlen=_MOST_CALLS)
        self._left_out = 0
        self._denied: deque[str] = deque(maxlen=_MOST_REMEMBERED)
        self._denials = 0
        self._open: dict[str, asyncio.Future[None]] = {}
        """Fingerprint of each call that it thinks about → done when it has answered."""
        self.requests = 0
        self.cost = 0.0

    def begin_turn(self, message: str, others: str = "") -> None:
        """`message`: the person's own words. `others`: the whole input, where somebody else wrote a part of it."""
        self._message, self._others = _cut(message, _MOST_MESSAGE), _cut(others, _MOST_MESSAGE)
        self._calls.clear()
        self._left_out = self._denials = 0

    def set_turn(self, message: str, others: str, calls: Iterable[dict[str, Any]]) -> None:
        """A turn as a journal tells it. Each call: `tool`, `args`, `status` and its `output`."""
        self.begin_turn(message, others)
        self._denied.clear()
        for call in calls:
            self._note(**call)

    def note_call(self, outcome: Outcome, args: Any, *, hidden: bool = False) -> None:
        """A call of the turn has ended. `args`: as they may be shown; `hidden`: its result is nobody else's."""
        said = "" if hidden else outcome.text if outcome.executed else outcome.error
        self._note(outcome.tool, args, outcome.status.value, said)

    def _note(self, tool: str, args: Any, status: str, output: str) -> None:
        self._left_out += len(self._calls) == _MOST_CALLS
        if len(whole := json.dumps(args, ensure_ascii=False, default=str)) > _MOST_OUTPUT:
            args = _cut(whole, _MOST_OUTPUT)
        self._calls.append({"tool": tool, "args": args, "status": status, "output": _cut(output, _MOST_OUTPUT)})

    def not_reviewable(self, judged: Evaluation, mode: ApprovalMode, sandbox: Sandbox | None) -> str:
        """Why a person has to answer; empty: the reviewer may."""
        decision = judged.decision
        if mode is ApprovalMode.STRICT:
            return "in the mode strict a person answers everything"
        asking = (source.source for source in decision.sources if source.verdict is Verdict.ASK)
        return self.not_its_to_answer(decision.risk, asking) or next(_written_by_hand(judged, sandbox), "")

    def not_its_to_answer(self, risk: Risk, asking: Iterable[str]) -> str:
        """Returns why the reviewer may not answer, judged by the Decision alone; empty if it may. `asking`: the kinds
        of sources that say `ask`.
        """
        if is_riskier(risk, self.settings.up_to):
            return f"its risk is {risk}, above {self.settings.up_to}"
        if self._four_eyes:
            return "with approval.four_eyes people answer"
        return next((f"a {source} asks" for source in asking if source != "base"), "")

    async def review(self, card: Mapping[str, Any], processes: HookProcesses) -> ReviewAnswer:
        """Asks the reviewer about a card. `processes` starts its program."""
        fingerprint = str(card.get("fingerprint", ""))
        while fingerprint in self._open or len(self._open) >= max(1, MOST_DENIALS - self._denials):
            await asyncio.wait(self._open.values(), return_when=asyncio.FIRST_COMPLETED)
        answered = self._open[fingerprint] = asyncio.get_running_loop().create_future()
        try:
            return await self._review(card, fingerprint, processes)
        finally:
            del self._open[fingerprint]
            answered.set_result(None)

    async def _review(self, card: Mapping[str, Any], fingerprint: str, processes: HookProcesses) -> ReviewAnswer:
        if problem := self._denied_before(card, fingerprint) or self._over_budget():
            return ReviewAnswer(says=Says.UNSURE, reason=problem)
        self.requests += 1
        began = monotonic()
        told = {
            "card": {name: card[name] for name in _CARD if card.get(name)},
            "message": self._message,
            **({"others": self._others} if self._others else {}),
            "calls": list(self._calls),
            **({"callsLeftOut": self._left_out} if self._left_out else {}),
        }
        if self.settings.run:
            answer = await self._ask_program(self._with_fences(told), processes)
        else:
            answer = await self._asked_model(told)
        if answer.says is Says.DENY:
            self._denied.append(fingerprint)
            self._denials += 1
        return ReviewAnswer(says=answer.says, reason=answer.reason, seconds=monotonic() - began)

    def _with_fences(self, told: dict[str, Any]) -> dict[str, Any]:
        calls = [{**call, "output": self._fence(call["output"])} for call in told["calls"]]
        return {**told, "calls": calls} | ({"others": self._fence(told["others"])} if "others" in told else {})

    def _denied_before(self, card: Mapping[str, Any], fingerprint: str) -> str:
        if card.get("previouslyDenied"):
            return "you denied this call before"
        if fingerprint in self._denied:
            return "it denied this call before"
        return f"it denied {MOST_DENIALS} calls of this turn" if self._denials >= MOST_DENIALS else ""

    def _over_budget(self) -> str:
        settings = self.settings
        if self.requests >= settings.max_requests:
            return f"its budget of {settings.max_requests} requests is spent"
        if settings.max_cost_usd is not None and self.cost >= settings.max_cost_usd:
            return f"its budget of {settings.max_cost_usd:g} USD is spent"
        return ""

    async def _ask_program(self, told: Mapping[str, Any], processes: HookProcesses) -> ReviewAnswer:
        run = await processes.run_program(self.settings.run, json.dumps(told, default=str).encode(), SECONDS)
        if run.problem:
            return _unsure(f"it {run.problem}")
        if run.exit_code != 0:
            return _unsure(f"it ended with exit code {run.exit_code}")
        return read_review(run.out)

    async def _asked_model(self, told: Mapping[str, Any]) -> ReviewAnswer:
        assert self._ask_model is not None  # settings name a program or a model
        try:
            text, cost = await self._ask_model(told)
        except TimeoutError:
            return _unsure(f"it said nothing for {SECONDS:g} s")
        except ForgeError as error:
            return _unsure(error.message)
        self.cost += cost or 0.0
        return read_review(text)


def _unsure(reason: str) -> ReviewAnswer:
    return ReviewAnswer(says=Says.UNSURE, reason=_line(reason))


def read_review(text: str) -> ReviewAnswer:
    """`{"answer": "approve"}`, with a `reason`; or one line that is `approve`, `deny: reason` or `unsure: reason`."""
    text = text.strip()
    if len(text) > _MOST_ANSWER:
        return _unsure("it said too much")
    if text.startswith("{"):
        try:
            said = json.loads(text, object_pairs_hook=unique_members)
        except (ValueError, RecursionError):
            return _unsure("its answer cannot be read")
        word, reason = said.get("answer"), said.get("reason", "")
        if not isinstance(word, str) or word not in tuple(Says) or not isinstance(reason, str):
            return _unsure("its answer cannot be read")
        return ReviewAnswer(says=Says(word), reason=_line(reason))
    found = _WORD.fullmatch(text)
    if found is None:
        return _unsure("its answer cannot be read")
    return ReviewAnswer(says=Says(found[1].lower()), reason=_line(found[2] or ""))


def _cut(text: str, most: int) -> str:
    return shorten_middle(text, most, "\n … \n")


def _line(text: str) -> str:
    return shorten(one_line(text), _MOST_REASON)


def _written_by_hand(judged: Evaluation, sandbox: Sandbox | None) -> Iterator[str]:
    """Yields the `ask` verdicts that somebody wrote into a zone's block or a toolset's settings."""
    zones = [] if sandbox is None else [zone for zone in sandbox.zones.values() if zone.name != USER_TOOLS]
    for effect in judged.facts.effects or ():
        if effect.said is Verdict.ASK or effect.by_hand:
            yield f"{effect.by_hand or effect.said_by or 'a setting'} says ask"
        if effect.zone_verdict is Verdict.ASK and sandbox is not None:
            try:
                zone = sandbox.locate(effect.target).zone
            except SandboxError:
                yield "nobody knows its zone"
                continue
            if zone is None or effect.verb in zone.written:
                yield f"zone {zone.virtual(()) if zone else ''} says ask for {effect.verb.value}"
        if effect.verb is Verb.EXEC and not effect.proven:
            for zone in zones:
                for verb in (Verb.WRITE, Verb.DELETE):
                    if zone.mode is AccessMode.RW and verb in zone.written and zone.verdict(verb) is Verdict.ASK:
                        yield f"zone {zone.virtual(())} says ask for {verb.value}"
