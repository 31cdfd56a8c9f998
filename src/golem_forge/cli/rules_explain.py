"""`forge rules explain`, and the cases of `forge rules check --cases`: calls judged without running them.

`explain` prints a decision with everything that led to it; the exit code is the verdict. Cases are a YAML list of calls
with the verdict they should get:

    - {call: git status, verdict: ask}
    - {call: {tool: read_file, args: {path: a.txt}}, verdict: preApproved}

`read_cases` raises ConfigError for anything else, every problem with its line.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.explain import (
    COMMAND_TOOL,
    DryEvaluator,
    ExplainedCall,
    effects_json,
    explanation_json,
    open_evaluator,
    outcome_sentence,
    plan_for_explain,
    segments_json,
)
from golem_forge.cli.args import read_args
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.rules import HELP
from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.config.schema import unknown_key_message
from golem_forge.config.yaml_file import parse_document, read_bytes
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import columns, escape_control_chars, shorten
from golem_forge.policy.shell.strict import quote
from golem_forge.storage.home import forge_home

if TYPE_CHECKING:
    from argparse import Namespace

EXIT: Final = {Verdict.PRE_APPROVED: 0, Verdict.ASK: 3, Verdict.BLOCKED: 4, None: 2}
_PAYLOAD_WIDTH: Final = 200


def run_explain(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    command = words[end + 1 :] or [""] if "--" in words else None
    modes = f"--mode {'|'.join(ApprovalMode)}"
    declared = ("tool?", "args?", "--worker PATH", modes, "--json")
    asked = read_args("rules explain", HELP, words[:end], *declared, args="{}", worker="")
    text = None if command is None else command[0] if len(command) == 1 else " ".join(map(quote, command))
    if (text is None) == (asked.tool is None) or text == "":
        return fail("rules explain", "give either TOOL and its arguments as JSON, or a command's words after `--`.", 2)
    return asyncio.run(_explain(asked, text))


async def _explain(asked: Namespace, text: str | None) -> int:
    mode = ApprovalMode(asked.mode) if asked.mode else None
    root = asked.worker.partition("/")[0]
    plan = plan_for_explain(forge_home(), Path.cwd(), mode=mode, root=root)
    async with open_evaluator(plan, workers=asked.worker, about=text or asked.args) as dry:
        explained = await (dry.command(text) if text is not None else dry.tool_call(asked.tool, asked.args))
        if asked.json:
            print_json(explanation_json(explained, dry))
        else:
            _print_explained(explained, dry)
        return EXIT[explained.verdict]


def _print_explained(explained: ExplainedCall, dry: DryEvaluator) -> None:
    for notice in dry.notices:
        print_error("rules explain", notice)
    command = explained.args.get("cmd") if explained.tool == COMMAND_TOOL else None
    subject = command if isinstance(command, str) else json.dumps(explained.args, ensure_ascii=False)
    print(f"{escape_control_chars(explained.tool)}  {shorten(escape_control_chars(subject), _PAYLOAD_WIDTH)}")
    if explained.judged is None:
        refusal = explained.refusal
        assert refusal is not None
        named = " ".join(word for word in (refusal.status.value, refusal.code) if word)
        outlook = "would not run" if explained.verdict else "cannot be judged"
        print(f"{outlook}: {escape_control_chars(refusal.message)} [{named}]")
        if refusal.code == "TOOL_NOT_FOUND":
            print_error("rules explain", _next_step(explained.tool))
        return
    decision = explained.judged.decision
    by = decision.decided_by
    print(f"verdict     {decision.verdict.value}, risk {decision.risk.value}")
    print(f"decided by  {escape_control_chars(by.describe()) if by else 'nobody'}")
    print(f"then        {outcome_sentence(explained, dry)}")
    if effects := explained.judged.facts.effects:
        print("effects")
        rows = ([each["verdict"], each["effect"], each["notes"]] for each in effects_json(explained))
        print(columns(rows, indent="  "))
    elif effects is None:
        print("effects     unknown: the tool does not say what it touches")
    if segments := segments_json(explained):
        print("segments")
        print(columns(([each["verdict"], each["text"]] for each in segments), indent="  "))
    if explained.hooks:
        print("hooks that are asked before it runs")
        print(
            columns(
                ([hook.name, hook.origin, shorten(hook.run, _PAYLOAD_WIDTH)] for hook in explained.hooks), indent="  "
            )
        )
    print("sources")
    sources = []
    for each in decision.sources:
        reason = f"{each.reason} ({each.place})".strip() if each.file else each.reason
        sources.append(("→" if each is by else " ", each.verdict.value, each.source, each.id, reason))
    print(columns(sources, indent="  "))


def _next_step(name: str) -> str:
    if " " in name or which(name):
        return f"for a command write: forge rules explain -- {escape_control_chars(name)} …"
    if name == COMMAND_TOOL:
        return "the worker here cannot run commands: its file has no toolset `exec` or `coding`."
    return "forge tools list shows what there is; tools of a program's worker: forge run --dry-run lists them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    place: str
    """`cases.yaml:3`"""
    command: str = ""
    tool: str = ""
    args: dict[str, Any] | None = None
    verdict: Verdict

    @property
    def shown(self) -> str:
        return repr(self.command) if self.command else f"{self.tool} {self.args}"


def read_cases(path: Path, name: str) -> list[Case]:
    document = parse_document(read_bytes(path, name), name)
    values = document.value
    if not isinstance(values, list):
        raise ConfigError(f"{name}:1: expected a list of cases (`- {{call: git push, verdict: ask}}`)")
    places = [f"{name}:{document.lines[index,]}" for index in range(len(values))]
    problems: list[str] = []
    cases = [_case(value, place, problems) for value, place in zip(values, places, strict=True)]
    if problems:
        raise ConfigError(*problems)
    return [case for case in cases if case is not None]


def _case(value: Any, place: str, problems: list[str]) -> Case | None:
    before = len(problems)
    if not isinstance(value, dict):
        problems.append(f"{place}: expected a case: a mapping with `call` and `verdict`")
        return None
    problems += _unknown_keys(value, ("call", "verdict"), place)
    verdict, call = value.get("verdict"), value.get("call")
    if not isinstance(verdict, str) or verdict not in {each.value for each in Verdict}:
        problems.append(f"{place}: verdict: expected one of {', '.join(Verdict)}, got {verdict!r}")
    tool = args = None
    if isinstance(call, dict):
        problems += _unknown_keys(call, ("tool", "args"), f"{place}: call")
        tool, args = call.get("tool"), call.get("args", {})
        if not isinstance(tool, str) or not isinstance(args, dict):
            problems.append(f"{place}: call: expected `tool` (a name) and `args` (a mapping)")
    elif not isinstance(call, str) or not call:
        problems.append(f"{place}: call: expected a command's text, or a mapping with `tool` and `args`")
    if len(problems) > before:
        return None
    assert isinstance(verdict, str)
    command = call if isinstance(call, str) else ""
    return Case(place=place, command=command, tool=tool or "", args=args, verdict=Verdict(verdict))


def _unknown_keys(table: dict[Any, Any], known: tuple[str, ...], place: str) -> list[str]:
    return [f"{place}: {unknown_key_message(str(key), known)}" for key in table if key not in known]


async def case_failure(case: Case, dry: DryEvaluator) -> str:
    """Empty: the case holds."""
    explained = await (dry.command(case.command) if case.command else dry.tool_call(case.tool, case.args))
    if explained.verdict is case.verdict:
        return ""
    return f"{case.place}: {case.shown}: expected {case.verdict.value}, got {_actual_verdict(explained)}"


def _actual_verdict(explained: ExplainedCall) -> str:
    if explained.judged is None:
        assert explained.refusal is not None
        said = f"{explained.verdict.value}: " if explained.verdict else "no verdict: "
        return said + explained.refusal.message
    by = explained.judged.decision.decided_by
    return f"{explained.judged.decision.verdict.value} ({by.describe() if by else 'nobody decided'})"
