"""`forge hooks`: which hooks there are here, and what one of them would say to a call.

`test` runs the hook for real, in the walls it would have, with every zone read-only; the call itself is only judged.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.explain import COMMAND_TOOL, DryEvaluator, open_evaluator, plan_for_explain
from golem_forge.agent.session_hooks import prepare_hooks
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import FAILED, USAGE, fail, print_error, print_json, read_args, run_verb
from golem_forge.config.hooks_block import Hook, HookPoint
from golem_forge.config.program import Program, load_program
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import columns, escape_control_chars, nearest_remark, shorten
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.hooks import call_paths
from golem_forge.orchestrator.resolve import resolve, validate
from golem_forge.policy.hooks import HookAnswer, HookOrder, HookRun, hook_input, read_answer
from golem_forge.policy.shell.strict import quote
from golem_forge.storage.home import forge_home

if TYPE_CHECKING:
    from argparse import Namespace

    from golem_forge.policy.hooks import ReadyHook

HELP: Final = """usage: forge hooks list [--json]
       forge hooks test NAME [TOOL [JSON] | -- COMMAND…] [--json]

  list   the hooks of your config.yaml and of this program, and whether they count
  test   run one hook and show what it would say: to a call of TOOL with these arguments, or to a command. The call
         is judged and not made, and the hook can change nothing.

Exit: 0 it agrees (list: shown), 1 the hook failed, 2 usage or configuration, 3 it asks, 4 it refuses."""
_VERBS: Final = {"list": ("hooks", "the hooks there are"), "test": ("hooks", "what one would say")}
_WIDTH: Final = 60


def run(words: list[str]) -> int:
    return run_verb("hooks", "golem_forge.cli", _VERBS, words, HELP)


def run_list(words: list[str]) -> int:
    asked = read_args("hooks list", HELP, words, "--json")
    program, withheld = read_hooks(Path.cwd())
    if asked.json:
        print_json([_as_json(hook, hook not in withheld) for hook in (*program.hooks, *withheld)])
        return 0
    if not program.hooks and not withheld:
        print_error("hooks", "no hooks here. `hooks:` in your config.yaml or in forge.yaml names them.")
        return 0
    rows = [("NAME", "ON", "FOR", "RUNS", "FROM", "")]
    for hook in (*program.hooks, *withheld):
        what = shorten(" ".join((*hook.tools, *hook.paths)), _WIDTH)
        state = "not trusted: it does not run before `forge trust`" if hook in withheld else ""
        rows.append((hook.name, hook.on.value, what or "-", shorten(hook.run, _WIDTH), hook.origin, state))
    print(columns(rows))
    return 0


def _as_json(hook: Hook, counts: bool) -> dict[str, Any]:
    return {
        "name": hook.name,
        "on": hook.on.value,
        "run": hook.run,
        "tools": list(hook.tools),
        "paths": list(hook.paths),
        "timeoutS": hook.timeout_s,
        "walls": "host" if hook.on_host else "inside",
        "file": hook.origin,
        "own": hook.own,
        "counts": counts,
    }


def read_hooks(directory: Path) -> tuple[Program, tuple[Hook, ...]]:
    """The program, and the hooks that would count if it were trusted. Raises ConfigError."""
    home = forge_home()
    trust = trust_store(home)
    program = load_program(directory, home, trusted=trust.trusted, trusted_with=trust.trusted_with)
    if program.trusted:
        return program, ()
    whole = load_program(directory, home, trusted=lambda _: True)
    return program, tuple(hook for hook in whole.hooks if hook not in program.hooks)


def run_test(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    command = words[end + 1 :] if "--" in words else []
    asked = read_args("hooks test", HELP, words[:end], "NAME", "tool?", "args?", "--json", args="{}")
    if "--" in words and (asked.tool or not command):
        return fail("hooks test", "give either TOOL and its arguments as JSON, or a command's words after `--`.", USAGE)
    return asyncio.run(_test(asked, command))


async def _test(asked: Namespace, command: list[str]) -> int:
    home, plan = forge_home(), plan_for_explain(forge_home(), Path.cwd())
    hooks = prepare_hooks(plan.program, plan.trust, home)
    known = {each.hook.name: each for each in (hooks.hooks if hooks is not None else ())}
    if (ready := known.get(asked.name)) is None:
        named = f"no hook '{escape_control_chars(asked.name)}'{nearest_remark(asked.name, known)}"
        return fail("hooks test", f"{named}. `forge hooks list` shows them.", USAGE)
    text = command[0] if len(command) == 1 else " ".join(map(quote, command))
    tool, args = (COMMAND_TOOL, {"cmd": text}) if command else (asked.tool or "", asked.args)
    about_calls = ready.hook.on in (HookPoint.BEFORE_CALL, HookPoint.AFTER_CALL)
    if about_calls and not tool:
        why = f"'{ready.hook.name}' is asked about calls: name a tool, or a command after `--`."
        return fail("hooks test", why, USAGE)
    async with open_evaluator(plan, about=f"{tool} {args}") as dry:
        order = await _order(ready, dry, tool, args) if about_calls else await _plain_order(ready, dry)
        if isinstance(order, str):
            return fail("hooks test", order, USAGE)
        run = await dry.orchestrator.hooks.processes.run(order)
    answer = read_answer(ready.hook, run)
    if asked.json:
        print_json(_answer_json(ready.hook, run, answer))
    else:
        _print_answer(ready.hook, run, answer)
    if answer.failure:
        return FAILED
    return {Verdict.ASK: 3, Verdict.BLOCKED: 4}.get(answer.verdict, 0) if answer.verdict is not None else 0


async def _order(ready: ReadyHook, dry: DryEvaluator, name: str, args: Any) -> HookOrder | str:
    """Returns what the hook would be started with, or why such a call would never reach it."""
    explained = await dry.tool_call(name, args)
    if explained.judged is None:
        assert explained.refusal is not None
        return f"this call would not be judged: {explained.refusal.message}"
    call = ToolCall(name, args, Caller.HUMAN)
    signal = InterruptSignal()
    state = CallState(call, signal, signal)
    try:
        state.tool, raw, _ = resolve(call, dry.catalog, lambda tool, args: ())
        state.arguments = validate(state.tool, raw)
    except ForgeError as error:
        return error.message
    hook, paths = ready.hook, call_paths(ready.hook, explained.judged.facts.effects)
    if paths is None or (hook.on is HookPoint.BEFORE_CALL and hook not in explained.hooks):
        return f"'{hook.name}' is not asked about this call: its `tools` or `paths` name others"
    facts = await dry.orchestrator.hooks.facts(state, explained.judged, paths)
    if hook.on is HookPoint.AFTER_CALL:
        facts["outcome"] = {"status": "success", "error": "", "text": ""}
    return HookOrder(ready=ready, input=hook_input(hook, facts), paths=paths)


async def _plain_order(ready: ReadyHook, dry: DryEvaluator) -> HookOrder:
    facts = {**await dry.orchestrator.hooks.place(), "message": "a test of this hook", "summary": "", "changed": []}
    return HookOrder(ready=ready, input=hook_input(ready.hook, facts))


def _answer_json(hook: Hook, run: HookRun, answer: HookAnswer) -> dict[str, Any]:
    return {
        "hook": hook.name,
        "exitCode": run.exit_code,
        "seconds": round(run.seconds, 3),
        "verdict": answer.verdict.value if answer.verdict is not None else None,
        "reason": answer.reason,
        "toModel": answer.to_model,
        "toPerson": answer.to_person,
        "failure": answer.failure,
        "warnings": list(answer.warnings),
        "stdout": run.out,
        "stderr": run.err,
    }


def _print_answer(hook: Hook, run: HookRun, answer: HookAnswer) -> None:
    if answer.failure:
        effect = "; each call that it is asked about is refused" if hook.on is HookPoint.BEFORE_CALL else ""
        said = f"failed: it {answer.failure}{effect}"
    elif answer.verdict is not None:
        said = f"{answer.verdict.value}: {answer.reason}"
    else:
        said = "nothing against it" if hook.on is HookPoint.BEFORE_CALL else "done"
    rows = [
        ("hook", f"{hook.name} ({hook.origin})"),
        ("says", said),
        ("to you", answer.to_person),
        ("to the model", answer.to_model),
        *(("warning", warning) for warning in answer.warnings),
        ("took", f"{run.seconds:.2f} s"),
    ]
    for name, text in rows:
        if text:
            print(f"{name:<13} {escape_control_chars(text)}")
    for name, text in (("stdout", run.out), ("stderr", run.err)):
        if text.strip():
            print(f"{name}\n  " + escape_control_chars(shorten(text.strip(), 2000)).replace("\n", "\n  "))
