"""`forge rules explain`: prints a judgement with everything that led to it. The exit code is the verdict."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import columns, complain, parser, print_json, shortened
from golem_forge.cli.rules import HELP
from golem_forge.cli.rules.judging import COMMAND_TOOL, Bench, Explained, open_bench
from golem_forge.config.modes import ApprovalMode
from golem_forge.core.decision import Source
from golem_forge.core.effects import Effect
from golem_forge.core.verdict import Verdict, strictest
from golem_forge.core.visible import visible
from golem_forge.policy.effects import floors_of, risk_of
from golem_forge.policy.rules import RuleOutcome
from golem_forge.policy.shell import quote
from golem_forge.workers.surroundings import DEFAULT_WORKER

if TYPE_CHECKING:
    from argparse import Namespace

EXIT: Final = {Verdict.PRE_APPROVED: 0, Verdict.ASK: 3, Verdict.BLOCKED: 4, None: 2}
_THEN: Final = {
    (Verdict.ASK, ApprovalMode.APPROVE_ALL): "it would run: the mode approves what asks",
    (Verdict.ASK, ApprovalMode.AUTO_DENY): "it would be denied: the mode asks nobody",
}
_PAYLOAD_WIDTH: Final = 200


def run_explain(words: list[str]) -> int:
    own, command = _split(words)
    asked = _parse(own)
    text = None if command is None else command[0] if len(command) == 1 else " ".join(map(quote, command))
    if (text is None) == (asked.tool is None) or text == "":
        complain("rules explain", "give either TOOL and its arguments as JSON, or a command's words after `--`.")
        return 2
    bench = open_bench(Path.cwd(), worker=asked.worker, mode=ApprovalMode(asked.mode) if asked.mode else None)
    try:
        explained = asyncio.run(bench.command(text) if text is not None else bench.tool_call(asked.tool, asked.args))
    finally:
        bench.close()
    if asked.json:
        print_json(as_json(explained, bench))
    else:
        _print(explained, bench)
    return EXIT[explained.verdict]


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :] or [""]


def _parse(words: list[str]) -> Namespace:
    reader = parser("rules explain", HELP)
    reader.add_argument("tool", nargs="?")
    reader.add_argument("args", nargs="?", default="{}")
    reader.add_argument("--worker", default=DEFAULT_WORKER)
    reader.add_argument("--mode", choices=[mode.value for mode in ApprovalMode])
    reader.add_argument("--json", action="store_true")
    return reader.parse_args(words)


def _print(explained: Explained, bench: Bench) -> None:
    for notice in bench.notices:
        complain("rules explain", notice)
    subject = (
        explained.args["cmd"] if explained.tool == COMMAND_TOOL else json.dumps(explained.args, ensure_ascii=False)
    )
    print(f"{visible(explained.tool)}  {shortened(visible(subject), _PAYLOAD_WIDTH)}")
    if explained.judged is None:
        refusal = explained.refusal
        assert refusal is not None
        named = " ".join(word for word in (refusal.status.value, refusal.code) if word)
        outlook = "would not run" if explained.verdict else "cannot be judged"
        print(f"{outlook}: {visible(refusal.message)} [{named}]")
        return
    decision = explained.judged.decision
    by = decision.decided_by
    print(f"verdict     {decision.verdict.value}, risk {decision.risk.value}")
    print(f"decided by  {visible(by.describe()) if by else 'nobody'}")
    print(f"then        {then(explained, bench)}")
    if effects := explained.judged.facts.effects:
        print("effects")
        print(columns(([said["verdict"], said["effect"], said["notes"]] for said in _effects(explained)), indent="  "))
    elif effects is None:
        print("effects     unknown: the tool does not say what it touches")
    if segments := _segments(explained):
        print("segments")
        print(columns(([said["verdict"], said["text"]] for said in segments), indent="  "))
    print("sources")
    rows = [
        ("→" if source is by else " ", source.verdict.value, source.source, source.id, _why(source))
        for source in decision.sources
    ]
    print(columns(rows, indent="  "))


def _why(source: Source) -> str:
    return f"{source.reason} ({source.place})".strip() if source.file else source.reason


def then(explained: Explained, bench: Bench) -> str:
    """What becomes of the call, for the one who reads only one line."""
    verdict, mode = explained.verdict, bench.mode
    if verdict is Verdict.BLOCKED:
        return "it would be refused, in every mode, for every caller"
    if verdict is Verdict.PRE_APPROVED:
        return "it would run without a question"
    said = _THEN.get((Verdict.ASK, mode.value), "a person would be asked; without anybody to ask it is denied")
    return f"{said} (mode {mode.value.value}, {mode.origin})"


def _effects(explained: Explained) -> list[dict[str, Any]]:
    assert explained.judged is not None
    said = []
    for index, (effect, base) in enumerate(
        zip(explained.judged.facts.effects or (), (each.base for each in explained.judged.bases), strict=True)
    ):
        verdict = _verdict_of(index, effect, base, explained.outcome)
        notes = [mark.value for mark in effect.marks if mark.value != "danger"]
        notes += [f"danger:{danger}" for danger in effect.dangers]
        notes += ["proven read-only"] if effect.proven else []
        said.append(
            {
                "effect": effect.describe(),
                "verdict": verdict.value,
                "risk": risk_of(effect).value,
                "notes": ", ".join(notes),
                "words": list(effect.words),
            }
        )
    return said


def _segments(explained: Explained) -> list[dict[str, Any]]:
    """Only where a command has several: a single one is its effect already."""
    found = [
        {"text": said["effect"].removeprefix("exec "), "verdict": said["verdict"], "words": said["words"]}
        for said in _effects(explained)
        if said["words"]
    ]
    return found if len(found) > 1 else []


def _verdict_of(index: int, effect: Effect, base: Verdict, outcome: RuleOutcome | None) -> Verdict:
    """What one effect would be judged as, were it the whole call."""
    hits = [hit.rule for hit in outcome.hits if hit.index in (index, -1)] if outcome else []
    lifted = base
    if said := [rule.verdict for rule in hits]:
        strictest_rule = strictest(said)
        lifts = strictest_rule is Verdict.PRE_APPROVED and base is not Verdict.BLOCKED
        lifted = Verdict.PRE_APPROVED if lifts else strictest((base, strictest_rule))
    accepted = outcome.accepted if outcome else frozenset()
    floors = [id_ for id_, _ in floors_of(effect) if id_.removeprefix("danger:") not in accepted]
    return strictest((lifted, Verdict.ASK)) if floors else lifted


def as_json(explained: Explained, bench: Bench) -> dict[str, Any]:
    common: dict[str, Any] = {
        "tool": explained.tool,
        "args": explained.args,
        "worker": bench.worker,
        "mode": bench.mode.value.value,
        "verdict": explained.verdict.value if explained.verdict else None,
        "notices": bench.notices,
    }
    if explained.judged is None:
        refusal = explained.refusal
        assert refusal is not None
        return common | {"status": refusal.status.value, "code": refusal.code, "error": refusal.message}
    decision = explained.judged.decision.to_json()
    if explained.tool == COMMAND_TOOL:
        del decision["fingerprint"]  # it belongs to the tool that would run the command, not to an explanation
    return common | {
        "then": then(explained, bench),
        "effects": _effects(explained) if explained.judged.facts.effects is not None else None,
        "segments": _segments(explained),
        "decision": decision,
    }
