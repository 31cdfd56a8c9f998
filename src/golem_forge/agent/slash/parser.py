"""A typed line as a command: `parse_command`, `is_command`, `classify_command`.

`!cmd` is short for `/tool exec_command --cmd …`: the rest of the line is the command, whatever quotes it holds.

Words: `'…'` is literal, `"…"` knows `\\"` and `\\\\`, elsewhere a backslash takes the next character as it is. Raises
CommandError for a quote that is not closed and a backslash with nothing behind it.

Parsing knows no tool, so `options` is only the look of the line (`--key value`, `--flag`, `--no-flag`, `-abc`); the
code that runs a tool binds `tokens` by the tool's schema instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from golem_forge.core.calls import Caller
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import SLASH_COMMANDS
from golem_forge.tools.cli_args import INTERACTIVE_FLAG, OptionToken
from golem_forge.tools.tool import Tool, may_call

BUILT_IN_NAMES: Final = SLASH_COMMANDS
TOOL_RUNNERS: Final = frozenset({"tool", "t"})
SHELL_TOOL: Final = "exec_command"
"""The tool that runs what a person types behind `!`."""
_NAME: Final = regex(r"[\w.-]*")
_MAX_NAME: Final = 100
_NEGATIVE: Final = regex(r"-(?:[0-9]|\.[0-9])")
_WORD_PART: Final = regex(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\["\\]?)*+)"|\\(?P<escaped>.)|(?P<bare>[^\s'"\\]+)""", re.DOTALL
)
_ESCAPED: Final = regex(r"""\\(["\\])""")
_UNFINISHED: Final = {
    "'": "Unclosed single quote at position {}",
    '"': "Unclosed double quote at position {}",
    "\\": "Trailing backslash at end of input",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    name: str
    """The name as typed; names ignore case."""
    args: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """Text, True or False; a list of them for an option given more than once."""
    raw: str
    tokens: tuple[OptionToken, ...] = ()
    """Every word behind the name, with its place in the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    type: Literal["builtin", "tool", "unknown"]
    name: str
    """The canonical name; as typed if it is unknown."""
    parsed: ParsedCommand

    @property
    def tool_name(self) -> str | None:
        """The tool's name; None if it is no tool."""
        return self.name if self.type == "tool" else None


def is_command(line: str) -> bool:
    """`/` and a name, or `!` and a shell command. A name has no second `/`: `/workspace/notes.txt` is a path in a
    sentence. `![` begins a picture in Markdown."""
    if not line.startswith("/"):
        return bool(shell_command(line))
    word = line[1:].split(maxsplit=1)[:1] if line[1:2].strip() else []
    return bool(word) and "/" not in word[0]


def shell_command(line: str) -> str:
    """Returns the command after the `!`; empty if the line runs no shell command."""
    command = line[1:].strip() if line.startswith("!") else ""
    return "" if command.startswith("[") else command


def parse_command(line: str) -> ParsedCommand | None:
    """Parses a command line; None for anything else: text, `/`, `!`, a path."""
    if not is_command(line):
        return None
    if command := shell_command(line):
        words = (OptionToken(SHELL_TOOL), OptionToken(f"--cmd={command}", 1))
        return ParsedCommand(name="tool", args=[SHELL_TOOL], options={"cmd": command}, raw=line, tokens=words)
    name, *rest = tokenize(line, 1)
    args, options = _split_options(rest)
    return ParsedCommand(name=name.text, args=args, options=options, raw=line, tokens=tuple(rest))


def classify_command(parsed: ParsedCommand, tools: Iterable[Tool | str]) -> Classified:
    """Built-ins win; `/tool NAME` and `/t NAME` reach a tool whatever it is called. `tools`: what a person may run."""
    known = callable_names(tools)
    typed = parsed.name.lower()
    wanted = parsed.name
    if typed in TOOL_RUNNERS and parsed.tokens:
        wanted = parsed.tokens[0].text
    elif typed in BUILT_IN_NAMES:
        return Classified(type="builtin", name=typed, parsed=parsed)
    found = find_name(wanted, known)
    return Classified(type="tool" if found else "unknown", name=found or wanted, parsed=parsed)


def callable_names(tools: Iterable[Tool | str]) -> list[str]:
    """Returns the names of tools that a person may call."""
    return [
        tool if isinstance(tool, str) else tool.name
        for tool in tools
        if isinstance(tool, str) or may_call(Caller.HUMAN, tool.mode)
    ]


def unknown_name(typed: str) -> str:
    """Returns the beginning of an unknown word that looks like a name, for errors and the journal. Threat: a secret may
    stand behind it without a blank.
    """
    name = _NAME.match(typed)[0][:_MAX_NAME]  # type: ignore[index]
    return name if name == typed else f"{name}…"


def find_name(typed: str, known: Sequence[str]) -> str | None:
    """The name as it is spelled, whatever case was typed; the very same spelling wins."""
    if typed in known:
        return typed
    wanted = typed.lower()
    return next((name for name in known if name.lower() == wanted), None)


def _split_options(tokens: Sequence[OptionToken]) -> tuple[list[str], dict[str, Any]]:
    words = [token.text for token in tokens]
    args: list[str] = []
    options: dict[str, Any] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            args += words[at:]
            break
        if word == INTERACTIVE_FLAG:
            _add(options, word[1:], True)
        elif _is_option(word):
            name, equals, text = word.lstrip("-").partition("=")
            many = not word.startswith("--") and len(name) > 1
            if many:
                for letter in name:
                    _add(options, letter, text if equals and letter == name[-1] else True)
            elif equals:
                _add(options, name, text)
            elif at < len(words) and not _is_option(words[at]) and words[at] != "--":
                _add(options, name, words[at])
                at += 1
            elif word.startswith("--no-"):
                _add(options, name[3:], False)
            else:
                _add(options, name, True)
        else:
            args.append(word)
    return args, options


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NEGATIVE.match(word)


def _add(options: dict[str, Any], name: str, value: Any) -> None:
    if name not in options:
        options[name] = value
    elif isinstance(options[name], list):
        options[name].append(value)
    else:
        options[name] = [options[name], value]


class CommandError(ValueError):
    """Raised for a wrong command, with a text for the person who typed it."""


def tokenize(line: str, start: int = 0) -> list[OptionToken]:
    """The words from `start` on; positions count from the beginning of the line. Quoted and bare parts that touch are
    one word."""
    tokens: list[OptionToken] = []
    at = start
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        begin, parts = at, []
        while at < len(line) and not line[at].isspace():
            part = _WORD_PART.match(line, at)
            if part is None:
                raise CommandError(_UNFINISHED[line[at]].format(at))
            quoted = part["double"]
            literal = part["single"] or part["escaped"] or part["bare"] or ""
            parts.append(literal if quoted is None else _ESCAPED.sub(r"\1", quoted))
            at = part.end()
        tokens.append(OptionToken("".join(parts), begin))
    return tokens
