"""Approval modes and who may choose one (the command line, the person, a trusted program; a stranger only stricter),
and the keys `default` and `tools` of every `approval` block."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from golem_forge.config.schema import Check, ConfigProblems, MappingSchema, Setting, map_of, one_of
from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.decisions import Verdict


class ApprovalMode(StrEnum):
    """Who answers when a call asks."""

    INTERACTIVE = "interactive"
    STRICT = "strict"
    CONTAINED = "contained"
    PLAN = "plan"
    APPROVE_ALL = "approve_all"
    AUTO_DENY = "auto_deny"


MODE_MEANINGS: Final = {
    ApprovalMode.INTERACTIVE: "Forge asks you about each call that needs approval, unless you chose to remember it.",
    ApprovalMode.STRICT: "Forge asks you before every call that has an effect; rules in files allow nothing.",
    ApprovalMode.CONTAINED: "Forge works on its own inside the walls. It asks before anything leaves them or cannot be "
    "undone.",
    ApprovalMode.PLAN: "Forge reads and proposes, and changes nothing. Say `go`, and it starts the work.",
    ApprovalMode.APPROVE_ALL: "Calls that need approval run without a question. What is blocked stays blocked.",
    ApprovalMode.AUTO_DENY: "Forge denies each call that needs approval, unless you chose to remember it.",
}
"""For people who choose one."""

DEFAULT_MODE: Final = "default"
"""The origin of a mode that nobody wrote."""
_STRICTNESS: Final = (
    ApprovalMode.APPROVE_ALL,
    ApprovalMode.CONTAINED,
    ApprovalMode.INTERACTIVE,
    ApprovalMode.STRICT,
    ApprovalMode.AUTO_DENY,
    ApprovalMode.PLAN,
)


def is_stricter_mode(one: ApprovalMode, other: ApprovalMode) -> bool:
    return _STRICTNESS.index(one) > _STRICTNESS.index(other)


def choose_mode(
    flag: ApprovalMode | None,
    user: Setting[ApprovalMode] | None,
    project: Setting[ApprovalMode] | None,
    *,
    project_trusted: bool,
) -> Setting[ApprovalMode]:
    """Command line, user config, program, `interactive`. An untrusted program counts only where it is stricter."""
    if flag is not None:
        return Setting(flag, "--approval")
    if user is not None:
        return user
    if project is not None and (project_trusted or is_stricter_mode(project.value, ApprovalMode.INTERACTIVE)):
        return project
    return Setting(ApprovalMode.INTERACTIVE, DEFAULT_MODE)


VERDICT_CHECK: Final = one_of(*(verdict.value for verdict in Verdict))
APPROVAL_KEYS: Final[dict[str, Check]] = {"default": VERDICT_CHECK, "tools": map_of(VERDICT_CHECK)}
_APPROVAL: Final = MappingSchema(APPROVAL_KEYS)


def approval_settings(value: Any, path: YamlPath, problems: ConfigProblems) -> dict[str, Any]:
    """A check: `default`, where it is written, and `tools` by name as Settings with the line of each."""
    checked = _APPROVAL(value, path, problems)
    return verdict_settings(problems.file, checked if isinstance(checked, dict) else {}, path)


def verdict_settings(file: YamlFile, block: dict[str, Any], path: YamlPath) -> dict[str, Any]:
    """The same of a checked block."""

    def setting(word: str, *where: str) -> Setting[Verdict]:
        return Setting(Verdict(word), file.at((*path, *where)))

    made: dict[str, Any] = {
        "tools": {name: setting(word, "tools", name) for name, word in block.get("tools", {}).items()}
    }
    return made | ({"default": setting(block["default"], "default")} if "default" in block else {})
