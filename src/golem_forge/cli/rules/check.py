"""`forge rules check`: do the rules load, do their own examples hold, and do calls get the verdicts they should?"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from golem_forge.cli.plain import complain, homely, parser
from golem_forge.cli.rules import HELP
from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.program import PROJECT_RULES, find_root
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.visible import visible
from golem_forge.policy.rules import Origin, Rule, parse_rules


def run_check(words: list[str]) -> int:
    reader = parser("rules check", HELP)
    reader.add_argument("files", metavar="FILE", nargs="*")
    reader.add_argument("--cases", metavar="FILE")
    asked = reader.parse_args(words)
    home = forge_home()
    named = {Path(file): file for file in asked.files} or _usual_files(home)
    failures: list[str] = []
    extra: list[Rule] = []
    for path, name in named.items():
        origin = _origin(path, home)
        try:
            file = parse_rules(read_bytes(path, name), name, origin)
        except ConfigError as error:
            failures += error.problems
            continue
        extra += file.rules
        count = len(file.rules)
        print(f"{visible(name)}: {count} {'rule' if count == 1 else 'rules'}, examples hold")
        for warning in file.warnings:
            print(f"warning: {visible(warning)}")
        if asked.files and file.builtin_off and path.resolve() != home.rules.resolve():
            print(f"warning: {visible(name)}: builtin_off counts only in {home.shown(home.rules)}; the cases ignore it")
    if not named:
        print(f"no rules files: neither {home.shown(home.rules)} nor {PROJECT_RULES}")
    if asked.cases and not failures:
        failures += _check_cases(Path(asked.cases), asked.cases, tuple(extra))
    for failure in failures:
        print(visible(failure))
    if failures:
        complain("rules check", f"{len(failures)} {'failure' if len(failures) == 1 else 'failures'}.")
    return 1 if failures else 0


def _usual_files(home: ForgeHome) -> dict[Path, str]:
    root = find_root(Path.cwd()) or Path.cwd()
    usual = {home.rules: home.shown(home.rules), home.remembered: home.shown(home.remembered)}
    usual[root / PROJECT_RULES] = PROJECT_RULES
    return {path: name for path, name in usual.items() if os.path.lexists(path)}


def _origin(path: Path, home: ForgeHome) -> Origin:
    """Who would have written it decides what it may contain; a file of no known place is read as the person's own."""
    real = path.resolve()
    if real == home.remembered.resolve():
        return Origin.REMEMBERED
    return Origin.PROJECT if real.as_posix().endswith("/" + PROJECT_RULES) else Origin.USER


def _check_cases(path: Path, name: str, extra: tuple[Rule, ...]) -> list[str]:
    from golem_forge.cli.rules.cases import failure_of, read_cases
    from golem_forge.workers.explaining.evaluator import open_evaluator, plan_for_a_look

    async def judge_all() -> list[str]:
        about = " ".join(case.shown for case in cases)
        async with open_evaluator(plan_for_a_look(forge_home(), Path.cwd()), extra=extra, about=about) as dry:
            return [failure for case in cases if (failure := await failure_of(case, dry))]

    try:
        cases = read_cases(path, name)
        failures = asyncio.run(judge_all())
    except ConfigError as error:
        return list(error.problems)
    print(f"{visible(homely(name))}: {len(cases) - len(failures)} of {len(cases)} cases hold")
    return failures
