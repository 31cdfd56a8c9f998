"""Cases for `forge rules check`: calls with the verdict they should get, from a YAML list.

    - {call: git status, verdict: ask}
    - {call: {tool: read_file, args: {path: a.txt}}, verdict: preApproved}

Takes a file, gives Cases with their lines. Refuses (ConfigError) what is not such a list, every problem with its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golem_forge.config.shape import unknown_key
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.verdict import Verdict
from golem_forge.workers.explaining.evaluator import DryEvaluator, Explained


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
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    text = read_bytes(path, name)
    try:
        values = YAML(typ="safe", pure=True).load(text)
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}") from None
    except (YAMLError, ValueError, RecursionError):
        raise ConfigError(f"{name}:1: not valid YAML") from None
    if not isinstance(values, list):
        raise ConfigError(f"{name}:1: expected a list of cases (`- {{call: git push, verdict: ask}}`)")
    places = [f"{name}:{item.start_mark.line + 1}" for item in node.value]
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
    problems += [
        f"{place}: {unknown_key(str(key), ('call', 'verdict'))}" for key in value if key not in ("call", "verdict")
    ]
    verdict, call = value.get("verdict"), value.get("call")
    if not isinstance(verdict, str) or verdict not in {each.value for each in Verdict}:
        problems.append(f"{place}: verdict: expected one of {', '.join(Verdict)}, got {verdict!r}")
    tool = args = None
    if isinstance(call, dict):
        problems += [
            f"{place}: call: {unknown_key(str(key), ('tool', 'args'))}" for key in call if key not in ("tool", "args")
        ]
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


async def failure_of(case: Case, dry: DryEvaluator) -> str:
    """Empty: the case holds."""
    explained = await (dry.command(case.command) if case.command else dry.tool_call(case.tool, case.args))
    if explained.verdict is case.verdict:
        return ""
    return f"{case.place}: {case.shown}: expected {case.verdict.value}, got {_got(explained)}"


def _got(explained: Explained) -> str:
    if explained.judged is None:
        assert explained.refusal is not None
        said = f"{explained.verdict.value}: " if explained.verdict else "no verdict: "
        return said + explained.refusal.message
    by = explained.judged.decision.decided_by
    return f"{explained.judged.decision.verdict.value} ({by.describe() if by else 'nobody decided'})"
