"""`forge rules check | explain | list | revoke`: what the rules say, whether they hold, and taking one back.

`check` loads the rules, tries their own examples and a file of cases. `revoke` removes remembered answers; a rule that
somebody wrote by hand is pointed to, never rewritten. `explain` is in `rules_explain`, which loads much more.
"""

from __future__ import annotations

import asyncio
import os
from itertools import chain
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.in_force import open_rules
from golem_forge.cli.args import read_args
from golem_forge.cli.format import fail, print_columns, print_error, print_json_list
from golem_forge.config.program import PROJECT_RULES, find_root
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import closest_match, display_path, escape_control_chars, local_time
from golem_forge.policy.rules.book import RuleLine, RuleUsage, rule_usage
from golem_forge.policy.rules.files import revoke, revoke_all
from golem_forge.policy.rules.load import parse_rules
from golem_forge.policy.rules.model import Rule, RuleOrigin
from golem_forge.storage.home import ForgeHome, forge_home

HELP: Final = """usage: forge rules check [FILE…] [--cases FILE]
       forge rules explain TOOL [JSON] [--worker PATH] [--mode MODE] [--json]
       forge rules explain [--worker PATH] [--mode MODE] [--json] -- WORD…
       forge rules list [--store] [--json]
       forge rules revoke ID… [--store] | --remembered

  check     loads the rules (of the named files, else yours, the remembered ones and this project's), tries their own
            examples, and a YAML list of cases: `{call: git push, verdict: ask}` or
            `{call: {tool: write_file, args: {path: a.txt, content: x}}, verdict: ask}`. A file that is
            not in force, for example of an untrusted project, is checked as if it were. Failures have file:line.
            Exit: 0 all hold, 1 something does not, 2 usage
  explain   shows how Forge would judge a call: what the call touches, every rule and setting that has a say, and which
            one decides. It runs nothing, asks nobody and writes nothing. After `--` write the words of a command; a
            single word is the text of a command. Exit: 0 preApproved, 3 ask, 4 blocked or out of reach, 2 bad input
  list      every rule, what it matches, how often it matched a call and when last; rules without effect, with the
            reason. Exit: 0
  revoke    removes remembered rules, for running sessions too. It does not remove a rule that a person wrote into a
            file: it prints the file and line. Exit: 0 done, 1 not (all) removed, 2 usage

      --store   the rules that admins of a team made for all runners, with their authors; only admins revoke them"""


def run(words: list[str]) -> int:
    verb, rest = (words[0], words[1:]) if words else ("", [])
    own = rest[: rest.index("--")] if "--" in rest else rest
    if not words or {"-h", "--help"} & {verb, *own}:
        print(HELP)
        return 0 if words else 2
    if verb == "check":
        return run_check(rest)
    if verb == "explain":
        from golem_forge.cli.rules_explain import run_explain

        return run_explain(rest)
    if verb == "list":
        return run_list(rest)
    if verb == "revoke":
        return run_revoke(rest)
    return fail("rules", f"unknown verb '{verb}': check, explain, list or revoke. `forge rules --help` says more.", 2)


def run_check(words: list[str]) -> int:
    asked = read_args("rules check", HELP, words, "files:FILE*", "--cases FILE")
    home = forge_home()
    named = {Path(file): file for file in asked.files} or _usual_files(home)
    failures: list[str] = []
    extra: list[Rule] = []
    for path, name in named.items():
        try:
            file = parse_rules(read_bytes(path, name), name, _origin(path, home))
        except ConfigError as error:
            failures += error.problems
            continue
        extra += file.rules
        count = len(file.rules)
        print(f"{escape_control_chars(name)}: {count} {'rule' if count == 1 else 'rules'}, examples hold")
        for warning in file.warnings:
            print(f"warning: {escape_control_chars(warning)}")
        if asked.files and file.builtin_off and path.resolve() != home.rules.resolve():
            ignored = f"builtin_off counts only in {home.shown(home.rules)}; the cases ignore it"
            print(f"warning: {escape_control_chars(name)}: {ignored}")
    if not named:
        print(f"no rules files: {home.shown(home.rules)} and {PROJECT_RULES} do not exist")
    if asked.cases and not failures:
        failures += _check_cases(Path(asked.cases), asked.cases, tuple(extra))
    for failure in failures:
        print(escape_control_chars(failure))
    if failures:
        print_error("rules check", f"{len(failures)} {'failure' if len(failures) == 1 else 'failures'}.")
    return 1 if failures else 0


def _usual_files(home: ForgeHome) -> dict[Path, str]:
    root = find_root(Path.cwd()) or Path.cwd()
    usual = {home.rules: home.shown(home.rules), home.remembered: home.shown(home.remembered)}
    usual[root / PROJECT_RULES] = PROJECT_RULES
    return {path: name for path, name in usual.items() if os.path.lexists(path)}


def _origin(path: Path, home: ForgeHome) -> RuleOrigin:
    """Who would have written it decides what it may contain; a file of no known place is read as the person's own."""
    real = path.resolve()
    if real == home.remembered.resolve():
        return RuleOrigin.REMEMBERED
    return RuleOrigin.PROJECT if real.as_posix().endswith("/" + PROJECT_RULES) else RuleOrigin.USER


def _check_cases(path: Path, name: str, extra: tuple[Rule, ...]) -> list[str]:
    from golem_forge.agent.explain import open_evaluator, plan_for_explain
    from golem_forge.cli.rules_explain import case_failure, read_cases

    async def judge_all() -> list[str]:
        about = " ".join(case.shown for case in cases)
        async with open_evaluator(plan_for_explain(forge_home(), Path.cwd()), extra=extra, about=about) as dry:
            return [failure for case in cases if (failure := await case_failure(case, dry))]

    try:
        cases = read_cases(path, name)
        failures = asyncio.run(judge_all())
    except ConfigError as error:
        return list(error.problems)
    print(f"{escape_control_chars(display_path(name))}: {len(cases) - len(failures)} of {len(cases)} cases hold")
    return failures


_RULE_COLUMNS: Final = ("ID", "SOURCE", "VERDICT", "HITS", "LAST USED", "MATCHES", "SCOPE", "")
_NEVER: Final = RuleUsage()


def run_list(words: list[str]) -> int:
    asked = read_args("rules list", HELP, words, "--json", "--store")
    if asked.store:
        from golem_forge.cli.team.people import list_rules

        return list_rules(as_json=asked.json)
    home = forge_home()
    book = open_rules(home, Path.cwd())
    used = rule_usage(home.path)
    if asked.json:
        print_json_list(_rule_json(line, used.get(line.rule.id, _NEVER)) for line in book.lines())
        return 0
    print_columns(
        lambda: chain([_RULE_COLUMNS], (_rule_row(line, used.get(line.rule.id, _NEVER)) for line in book.lines()))
    )
    for notice in book.notices:
        print_error("rules", notice)
    return 0


def _rule_row(line: RuleLine, usage: RuleUsage) -> tuple[str, ...]:
    rule = line.rule
    return (
        rule.id,
        rule.origin.value,
        rule.verdict.value,
        str(usage.hits),
        local_time(usage.last) if usage.last else "never",
        rule.describe(),
        rule.scope.describe(),
        f"inactive: {line.inactive}" if line.inactive else "",
    )


def _rule_json(line: RuleLine, usage: RuleUsage) -> dict[str, Any]:
    return line.to_json() | {"hits": usage.hits, "lastUsed": usage.last or None, "rule": line.rule.to_yaml()}


def run_revoke(words: list[str]) -> int:
    asked = read_args("rules revoke", HELP, words, "ids:ID*", "--remembered", "--store")
    if bool(asked.ids) == asked.remembered:
        return fail("rules revoke", "give the IDs of rules, or --remembered for all remembered ones.", 2)
    if asked.store:
        from golem_forge.cli.team.people import revoke_rules

        return revoke_rules(asked.ids)
    home = forge_home()
    if asked.remembered:
        count = revoke_all(home) if os.path.lexists(home.remembered) else 0
        print(f"revoked {count} remembered {'rule' if count == 1 else 'rules'}.")
        return 0
    return _revoke(home, list(dict.fromkeys(asked.ids)))


def _revoke(home: ForgeHome, ids: list[str]) -> int:
    removed = revoke(home, ids) if os.path.lexists(home.remembered) else ()
    for id_ in removed:
        print(f"revoked {id_}.")
    if len(removed) == len(ids):
        return 0  # taking a permission back works whatever state the other files are in
    rules = [line.rule for line in open_rules(home, Path.cwd()).list()]
    left = [rule for rule in rules if rule.id in ids]
    for rule in left:
        text = f"{rule.file}:{rule.line}: {rule.id} was written by hand; remove it there."
        if rule.origin is RuleOrigin.BUILTIN:
            text = f"{rule.id} is builtin; to drop it write `builtin_off: [{rule.id}]` in {home.shown(home.rules)}."
        print_error("rules revoke", text)
    unknown = [id_ for id_ in ids if id_ not in removed and all(rule.id != id_ for rule in left)]
    for id_ in unknown:
        close = closest_match(id_, (rule.id for rule in rules))
        hint = f" (did you mean {close}?)" if close else ""
        print_error("rules revoke", f"no rule {id_}{hint}. `forge rules list` shows them.")
    return 1 if left or unknown else 0
