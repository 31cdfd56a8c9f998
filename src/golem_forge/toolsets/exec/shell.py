"""The `shell` toolset: runs one program, without a shell, as the rules of its YAML block allow.

Takes a command text, gives its exit code and both streams apart. `create_shell_tool(sandbox)` gives the tool for
embedders: it asks for every program unless `needs_approval` says else.

Words: quotes and backslashes as every shell reads them; nothing is expanded, `$VAR`, `~` and `*` are passed as they
are. Operators, substitutions and unclosed quotes are refused with their position (input_invalid).

Rules: `blocked` rules are tried first and matched leniently (any command found in the text, by basename, options
skipped); then the first rule in order whose words are the command's leading words decides. What no rule and no default
speaks of is refused. Neither refusal prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import pydantic
from golem_forge.policy.shell.arguments import is_long
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.policy.shell.patterns import matches_lenient, matches_prefix, matches_strict
from golem_forge.policy.shell.strict import CommandWorld, Segment
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.exec import env_field

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.environment import EnvBlock


class ShellToolset:
    name = "shell"

    @cached_property
    def config(self) -> type[pydantic.BaseModel]:
        return shell_model()

    def get_tools(self, ctx: ToolsetContext) -> list[Tool]:
        return [shell_tool(shell_settings(ctx.config), ctx.sandbox)]


def create_shell_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return shell_tool(ASK_FOR_ALL, sandbox, needs_approval)


_SHELL_DESCRIPTION: Final = (
    "Run one program with its arguments, without a shell: no pipes, redirections, substitutions or wildcards; quotes "
    "work as usual. Which programs may run is set by rules. For scripts use exec_command."
)


def shell_tool(
    settings: ShellSettings, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None
) -> Tool:
    return native_tool(
        "shell",
        _SHELL_DESCRIPTION,
        input_schema=_shell_arguments,
        planner=partial(_plan_shell, settings, sandbox),
        needs_approval=needs_approval,
        label="Run program",
        category="Commands",
    )


async def _plan_shell(settings: ShellSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.exec.command_plan import plan_program

    return await plan_program(settings, sandbox, args, ctx)


def _shell_arguments() -> type[pydantic.BaseModel]:
    seconds = Annotated[
        float,
        pydantic.Field(allow_inf_nan=False),
        pydantic.AfterValidator(lambda given: min(max(given, MIN_TIMEOUT_S), MAX_TIMEOUT_S)),
    ]
    return pydantic.create_model(
        "shell",
        command=(str, pydantic.Field(min_length=1, max_length=8192, description="The program and its arguments.")),
        timeout_s=(seconds | None, pydantic.Field(default=None, description="Seconds until it is ended (0.1-300).")),
    )


DEFAULT_TIMEOUT_S: Final = 30.0
MIN_TIMEOUT_S: Final = 0.1
MAX_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    rules: tuple[ShellRule, ...] = ()
    default: Verdict | None = None
    """None blocks what no rule matches."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    env: EnvBlock | None = None


ASK_FOR_ALL: Final = ShellSettings(default=Verdict.ASK)
"""Settings of a tool without a block (an embedder's, the built-in worker's): a person or a rule decides."""


def shell_settings(block: Any) -> ShellSettings:
    """`block` is validated; an empty one allows nothing, None means there is none."""
    if block is None:
        return ASK_FOR_ALL
    return ShellSettings(
        rules=tuple(
            ShellRule(
                pattern=rule.pattern,
                words=split_words(rule.pattern),
                approval=rule.approval,
                ask_if_args=tuple(rule.ask_if_args),
            )
            for rule in block.rules
        ),
        default=block.default.approval if block.default is not None else None,
        timeout_s=block.timeout_s,
        env=block.env,
    )


def shell_model() -> type[pydantic.BaseModel]:
    strict = pydantic.ConfigDict(extra="forbid")
    rule: Any = pydantic.create_model(
        "rule",
        __config__=strict,
        pattern=(
            Annotated[str, pydantic.AfterValidator(_usable_pattern)],
            pydantic.Field(description="Leading words of a command."),
        ),
        approval=(Verdict, pydantic.Field(default=Verdict.ASK)),
        ask_if_args=(list[str], pydantic.Field(default_factory=list, description="Words that make it ask.")),
    )
    default = pydantic.create_model(
        "default", __config__=strict, approval=(Verdict, pydantic.Field(default=Verdict.ASK))
    )
    fields: dict[str, Any] = {
        "rules": (list[rule], pydantic.Field(default_factory=list)),
        "default": (default | None, pydantic.Field(default=None)),
        "timeout_s": (
            float,
            pydantic.Field(default=DEFAULT_TIMEOUT_S, ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S, allow_inf_nan=False),
        ),
        "env": env_field(),
    }
    return pydantic.create_model("shell", __config__=strict, **fields)


def _usable_pattern(pattern: str) -> str:
    try:
        words = split_words(pattern)
    except ForgeError as error:
        raise ValueError(error.message) from None
    if not words or not words[0]:
        raise ValueError("a pattern needs the name of a program")
    return pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRule:
    pattern: str
    """The pattern as written, shown in refusals."""
    words: tuple[str, ...]
    approval: Verdict = Verdict.ASK
    ask_if_args: tuple[str, ...] = ()
    """Words that turn a match into `ask`."""


@dataclass(frozen=True, slots=True)
class ShellRuleVerdict:
    verdict: Verdict
    by: str


def evaluate_shell_rules(
    words: tuple[str, ...],
    text: str,
    rules: Sequence[ShellRule],
    default: Verdict | None,
    world: CommandWorld,
    cwd: str,
) -> ShellRuleVerdict:
    """`text` is the command as a shell would write it. Raises `policy_denied` for what is blocked or not spoken of."""
    found = find_commands(text)
    segment = Segment(words)
    for rule in rules:
        # Both readings: a program named by its path is blocked whatever the path, and so is one only found by parsing.
        if rule.approval is Verdict.BLOCKED and (
            matches_lenient(rule.words, found) or matches_strict(rule.words, segment, world, (cwd,))
        ):
            raise _policy_denied(f"Command blocked by rule '{rule.pattern.strip()}'.")
    for rule in rules:
        if rule.approval is not Verdict.BLOCKED and matches_strict(rule.words, segment, world, (cwd,)):
            raised = rule.approval is Verdict.PRE_APPROVED and (
                any(_has_argument(each, words) for each in rule.ask_if_args)
                or not matches_prefix(rule.words, segment, world, (cwd,))
            )
            return ShellRuleVerdict(Verdict.ASK if raised else rule.approval, f"shell rule '{rule.pattern.strip()}'")
    if default is None:
        raise _policy_denied(f"Command not allowed: no rule matches '{words[0]}' and there is no default.")
    if default is Verdict.BLOCKED:
        raise _policy_denied("Command blocked by rule 'default'.")
    return ShellRuleVerdict(default, "the default of the shell rules")


def _has_argument(wanted: str, words: tuple[str, ...]) -> bool:
    """The word itself, `word=…`, a long flag cut short, or, for `-x`, the letter in a cluster of flags."""
    letter = wanted[1:] if len(wanted) == 2 and wanted[0] == "-" and wanted[1] != "-" else ""
    return any(
        word == wanted
        or word.startswith(f"{wanted}=")
        or is_long(word, wanted)
        or bool(letter and word.startswith("-") and not word.startswith("--") and letter in word[1:])
        for word in words[1:]
    )


def _policy_denied(text: str) -> ForgeError:
    return ForgeError(text, status=Status.POLICY_DENIED, code="BLOCKED")


_BLANKS: Final = " \t"
_OPERATORS: Final = "|&;<>()\n`"
_SUBSTITUTIONS: Final = ("$(", "${")
_ESCAPED_IN_QUOTES: Final = '"\\$`'


def split_words(text: str) -> tuple[str, ...]:
    words: list[str] = []
    position = 0
    while position < len(text):
        if text[position] in _BLANKS:
            position += 1
            continue
        word, position = _read_word(text, position)
        words.append(word)
    return tuple(words)


def _read_word(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(text) and (char := text[position]) not in _BLANKS:
        if char == "'":
            end = text.find("'", position + 1)
            if end < 0:
                raise _unclosed_quote("'", position)
            parts.append(text[position + 1 : end])
            position = end + 1
        elif char == '"':
            part, position = _double_quoted(text, position)
            parts.append(part)
        elif char == "\\":
            parts.append(_escaped(text, position))
            position += 2
        else:
            _refuse_operator(text, position, _OPERATORS)
            parts.append(char)
            position += 1
    return "".join(parts), position


def _double_quoted(text: str, start: int) -> tuple[str, int]:
    """(what stands between the quotes, the position after the closing one)"""
    parts: list[str] = []
    position = start + 1
    while position < len(text) and (char := text[position]) != '"':
        if char == "\\" and text[position + 1 : position + 2] and text[position + 1] in _ESCAPED_IN_QUOTES:
            parts.append(text[position + 1])
            position += 2
            continue
        _refuse_operator(text, position, "`")
        parts.append(char)
        position += 1
    if position >= len(text):
        raise _unclosed_quote('"', start)
    return "".join(parts), position + 1


def _escaped(text: str, position: int) -> str:
    following = text[position + 1 : position + 2]
    if not following:
        raise InputInvalid(f"shell: the backslash at position {position} ends the command.")
    if following == "\n":
        _refuse_operator(text, position + 1, _OPERATORS)
    return following


def _refuse_operator(text: str, position: int, operators: str) -> None:
    found = next((each for each in _SUBSTITUTIONS if text.startswith(each, position)), "")
    if not found and text[position] in operators:
        found = text[position]
    if found:
        shown = "\\n" if found == "\n" else found
        raise InputInvalid(f"shell runs one program; '{shown}' at position {position} needs exec_command.")


def _unclosed_quote(mark: str, position: int) -> InputInvalid:
    return InputInvalid(f"shell: the quote {mark} at position {position} is not closed.")
