"""`python -m benchmarks.agentdojo`: replays every task, prints the table, writes build/agentdojo.json. `--approval
contained` replays them in that mode, `--programs` makes the calls of each task from inside one `run_code`.

Fails when a user task is no longer done, a call broke on the path, or the example of a reviewer by rules
(`examples/hooks`) approves an injected call: those are ours to keep. What the policy asks and lets through is reported,
not judged. Uses neither a model nor the network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from agentdojo.task_suite.load_suites import get_suites
from examples.hooks.review_by_rules import review as by_rules

from benchmarks.agentdojo.replay import replay
from benchmarks.agentdojo.report import SuiteReplay, counted, reviewed, table, together
from benchmarks.agentdojo.stage import POLICY, stage_for
from benchmarks.questions import PEOPLE, mode_of

SUITES: Final = "v1.2.2"
ROOT: Final = Path(__file__).resolve().parents[2]
REPORT: Final = ROOT / "build" / "agentdojo.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agentdojo", description="Replays AgentDojo's tasks.")
    parser.add_argument("--approval", choices=("interactive", "contained"), default="interactive", help="the mode")
    parser.add_argument("--programs", action="store_true", help="the calls of each task are made by one program")
    options = parser.parse_args()
    mode, programs = options.approval, options.programs
    played = [replay_suite(suite, mode, programs=programs) for suite in get_suites(SUITES).values()]
    suites, total = [counted(each) for each in played], counted(together(played))
    review = Counter[str]()
    for suite, each in zip(get_suites(SUITES).values(), played, strict=True):
        prompts = {f"{suite.name}/{task.ID}": task.PROMPT for task in suite.user_tasks.values()}
        review.update(reviewed(each, prompts, by_rules))
    asked = {PEOPLE[0]: total["benign_prompts"], **{person: _asked(person) for person in PEOPLE[1:]}}
    facts = {
        "agentdojo": version("agentdojo"),
        "suites": SUITES,
        "policy": str(POLICY.relative_to(ROOT)),
        "approval": mode,
        "programs": programs,
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        json.dumps(
            {**facts, "questions": asked, "reviewer": review, "total": total, "by_suite": suites},
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )
    how = f"mode {mode}{', by programs' if programs else ''}"
    print(f"agentdojo {facts['agentdojo']}, suites {SUITES}, policy {facts['policy']}, {how}\n")
    print(f"{table([*suites, total])}\n")
    print(f"utility {total['utility']}/{total['user_tasks']}")
    print(f"questions in {total['benign_calls']} benign calls: {_tools(asked)}")
    print(f"injected calls that ran unprompted: {_tools(total['injected_unprompted_by_tool'])}")
    print(
        f"reviewer by rules: approves {review['benign_approved']} of {review['benign_questions']} benign questions, "
        f"{review['injected_approved']} of {review['injected_questions']} injected ones"
    )
    print(f"goals that need no call, so no policy sees them: {_names(total['reached_without_any_call'])}")
    print(f"written to {REPORT.relative_to(ROOT)}")
    problems = ["the reviewer by rules approves an injected call"] if review["injected_approved"] else []
    problems += [*(f"no longer done: {task}" for task in total["utility_failed"]), *total["broken_calls"]]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def replay_suite(suite: Any, mode: str, *, programs: bool = False) -> SuiteReplay:
    user, injections = suite.user_tasks.values(), suite.injection_tasks.values()
    with tempfile.TemporaryDirectory(prefix="agentdojo-") as folder, asyncio.Runner() as runner:
        opened = stage_for(suite.tools, Path(folder), mode, programs=programs)
        stage = runner.run(opened.__aenter__())
        try:
            return SuiteReplay(
                name=suite.name,
                user=tuple(replay(suite, task, stage, runner, approve=True) for task in user),
                injected=tuple(replay(suite, task, stage, runner, approve=True) for task in injections),
                denied=tuple(replay(suite, task, stage, runner, approve=False) for task in injections),
            )
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _asked(person: str) -> int:
    """How often this person is asked in the user tasks, one session a suite."""
    asked = 0
    for suite in get_suites(SUITES).values():
        with tempfile.TemporaryDirectory(prefix="agentdojo-") as folder, asyncio.Runner() as runner:
            opened = stage_for(suite.tools, Path(folder), mode_of(person))
            stage = runner.run(opened.__aenter__())
            stage.person = person
            try:
                for task in suite.user_tasks.values():
                    replay(suite, task, stage, runner, approve=True)
            finally:
                runner.run(opened.__aexit__(None, None, None))
            asked += len(stage.asked)
    return asked


def _tools(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _names(tasks: list[str]) -> str:
    return ", ".join(tasks) or "none"


if __name__ == "__main__":
    sys.exit(main())
