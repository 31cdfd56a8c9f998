"""`forge rules explain`: prints a judgement with everything that led to it. The exit code is the verdict."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, complain, parser, print_json, shortened
from golem_forge.cli.rules import HELP
from golem_forge.config.home import forge_home
from golem_forge.config.modes import ApprovalMode
from golem_forge.core.decision import Source
from golem_forge.core.verdict import Verdict
from golem_forge.core.visible import visible
from golem_forge.policy.shell import quote
from golem_forge.workers.explaining.evaluator import (
    COMMAND_TOOL,
    DryEvaluator,
    Explained,
    open_evaluator,
    plan_for_a_look,
)
from golem_forge.workers.explaining.told import as_json, effects_of, segments_of, then

if TYPE_CHECKING:
    from argparse import Namespace

EXIT: Final = {Verdict.PRE_APPROVED: 0, Verdict.ASK: 3, Verdict.BLOCKED: 4, None: 2}
_PAYLOAD_WIDTH: Final = 200


def run_explain(words: list[str]) -> int:
    own, command = _split(words)
    asked = _parse(own)
    text = None if command is None else command[0] if len(command) == 1 else " ".join(map(quote, command))
    if (text is None) == (asked.tool is None) or text == "":
        complain("rules explain", "give either TOOL and its arguments as JSON, or a command's words after `--`.")
        return 2
    return asyncio.run(_explain(asked, text))


async def _explain(asked: Namespace, text: str | None) -> int:
    mode = ApprovalMode(asked.mode) if asked.mode else None
    root = asked.worker.partition("/")[0]
    plan = plan_for_a_look(forge_home(), Path.cwd(), mode=mode, root=root)
    async with open_evaluator(plan, workers=asked.worker, about=text or asked.args) as dry:
        explained = await (dry.command(text) if text is not None else dry.tool_call(asked.tool, asked.args))
        if asked.json:
            print_json(as_json(explained, dry))
        else:
            _print(explained, dry)
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
    reader.add_argument("--worker", default="")
    reader.add_argument("--mode", choices=[mode.value for mode in ApprovalMode])
    reader.add_argument("--json", action="store_true")
    return reader.parse_args(words)


def _print(explained: Explained, dry: DryEvaluator) -> None:
    for notice in dry.notices:
        complain("rules explain", notice)
    command = explained.args.get("cmd") if explained.tool == COMMAND_TOOL else None
    subject = command if isinstance(command, str) else json.dumps(explained.args, ensure_ascii=False)
    print(f"{visible(explained.tool)}  {shortened(visible(subject), _PAYLOAD_WIDTH)}")
    if explained.judged is None:
        refusal = explained.refusal
        assert refusal is not None
        named = " ".join(word for word in (refusal.status.value, refusal.code) if word)
        outlook = "would not run" if explained.verdict else "cannot be judged"
        print(f"{outlook}: {visible(refusal.message)} [{named}]")
        if refusal.code == "TOOL_NOT_FOUND":
            complain("rules explain", _next_step(explained.tool))
        return
    decision = explained.judged.decision
    by = decision.decided_by
    print(f"verdict     {decision.verdict.value}, risk {decision.risk.value}")
    print(f"decided by  {visible(by.describe()) if by else 'nobody'}")
    print(f"then        {then(explained, dry)}")
    if effects := explained.judged.facts.effects:
        print("effects")
        print(
            columns(([said["verdict"], said["effect"], said["notes"]] for said in effects_of(explained)), indent="  ")
        )
    elif effects is None:
        print("effects     unknown: the tool does not say what it touches")
    if segments := segments_of(explained):
        print("segments")
        print(columns(([said["verdict"], said["text"]] for said in segments), indent="  "))
    print("sources")
    rows = [
        ("→" if source is by else " ", source.verdict.value, source.source, source.id, _why(source))
        for source in decision.sources
    ]
    print(columns(rows, indent="  "))


def _next_step(name: str) -> str:
    if " " in name or which(name):
        return f"for a command write: forge rules explain -- {visible(name)} …"
    if name == COMMAND_TOOL:
        return "the worker here runs no commands: its file names neither the toolset `exec` nor `coding`."
    return "forge tools list shows what there is; tools of a program's worker: forge run --dry-run lists them."


def _why(source: Source) -> str:
    return f"{source.reason} ({source.place})".strip() if source.file else source.reason
