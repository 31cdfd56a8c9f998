"""`forge rules check | explain | list | revoke`: what the rules say, whether they hold, and taking one back.

`check` loads the rules, tries their own examples and a file of cases. `revoke` removes remembered answers; a rule that
somebody wrote by hand is pointed to, never rewritten. `explain` judges a call without running it and prints the
decision with everything that led to it; the exit code is the verdict. Cases are a YAML list of calls with the verdict
they should get:

    - {call: git status, verdict: ask}
    - {call: {tool: read_file, args: {path: a.txt}}, verdict: preApproved}

`read_cases` raises ConfigError for anything else, every problem with its line.
"""

from __future__ import annotations

import asyncio
import json
import os
from itertools import chain
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
from golem_forge.agent.in_force import open_rules
from golem_forge.cli.command import fail, print_columns, print_error, print_json, print_json_list, read_args, shell_text
from golem_forge.config.program import PROJECT_RULES, find_root
from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.validation import unknown_key_message
from golem_forge.config.yaml_file import parse_document, read_bytes
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import closest_match, columns, display_path, escape_control_chars, local_time, shorten
from golem_forge.policy.rules.book import RuleLine, RuleUsage, rule_usage
from golem_forge.policy.rules.files import revoke, revoke_all
from golem_forge.policy.rules.load import parse_rules
from golem_forge.policy.rules.model import Rule, RuleOrigin
from golem_forge.storage.home import ForgeHome, forge_home

if TYPE_CHECKING:
    from argparse import Namespace


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
    """Returns the origin of a rule file, which decides what it may contain; an unknown place counts as the person's
    own.
    """
    real = path.resolve()
    if real == home.remembered.resolve():
        return RuleOrigin.REMEMBERED
    return RuleOrigin.PROJECT if real.as_posix().endswith("/" + PROJECT_RULES) else RuleOrigin.USER


def _check_cases(path: Path, name: str, extra: tuple[Rule, ...]) -> list[str]:
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


EXIT: Final = {Verdict.PRE_APPROVED: 0, Verdict.ASK: 3, Verdict.BLOCKED: 4, None: 2}
_PAYLOAD_WIDTH: Final = 200


def run_explain(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    command = words[end + 1 :] or [""] if "--" in words else None
    modes = f"--mode {'|'.join(ApprovalMode)}"
    declared = ("tool?", "args?", "--worker PATH", modes, "--json")
    asked = read_args("rules explain", HELP, words[:end], *declared, args="{}", worker="")
    text = None if command is None else shell_text(command)
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
    """Where it is written, e.g. `cases.yaml:3`."""
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
    """Returns why a case fails; empty if it holds."""
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
