"""The lenient detector's command finder: takes any text, gives every command that it might run.

It only ever finds danger, never proves its absence. It descends into everything that runs commands: substitutions,
groups, wrappers, scripts given to shells, words piped to `xargs`. It never raises; nesting beyond 8 (or a text
built to take long) sets `too_deep`, which is a danger of its own. Written by hand for the same reason as the
strict parser, turned around: a grammar that rejects a text says nothing about what a shell makes of it.

A text in which lines stand in quotes or heredocs is read twice: as a whole (`CommandScan.commands`), and line by line
(`CommandScan.lines`), so that a quote or heredoc which was misread can hide nothing that stands on a line of its own.
The second reading also finds lines that are only data (a document in a heredoc). So it counts for everything that asks;
for what blocks it counts only where the first one is not `certain`: unclosed quotes, carriage returns, unusual
heredocs or arithmetic.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from fnmatch import fnmatchcase

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.policy.shell.arguments import join_paths, names
from golem_forge.policy.shell.lenient_reader import MAX_NESTING, read_commands
from golem_forge.policy.shell.statements import NOTHING, AnalysisReport, RawCommand, Redirect, Span, printed_texts
from golem_forge.policy.shell.wrappers import SHELLS, WRAPPERS, HiddenCommand, hidden_commands, reads_script_from_input

# Names that a pattern in command position (`/bin/r?`) is tried against.
_KNOWN = ("rm", "sudo", "dd", "find", "curl", "wget", "git", "chmod", "chown", *sorted(WRAPPERS))
_PRINTERS = frozenset({"echo", "printf", "yes"})
_SKIPPED = names("! if while until then do else elif {")
_MAX_FEEDERS = 64


@dataclass(frozen=True, slots=True)
class FoundCommand:
    """One command, its quotes removed. Spans are ranges of indices in `CommandScan.commands`: `fed` are the commands
    whose output it reads, `inner` those substituted into its words. `via` names the wrappers around it."""

    program: str
    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    inner: Span = NOTHING
    fed: Span = NOTHING
    via: tuple[str, ...] = ()
    depth: int = 0
    directory: str = ""  # where its wrappers make it run

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words[1:]


@dataclass(frozen=True, slots=True)
class CommandScan:
    commands: tuple[FoundCommand, ...]
    too_deep: bool
    fork_bomb: bool
    lines: tuple[FoundCommand, ...] = ()
    certain: bool = True

    @property
    def blockable(self) -> tuple[FoundCommand, ...]:
        """The commands that a blocking rule is held against."""
        return self.commands if self.certain else (*self.commands, *self.lines)


def find_commands(text: str) -> CommandScan:
    finder = _Finder(AnalysisReport(budget=12 * len(text) + 100_000))
    finder.read(text, _TOP_LEVEL)
    lines = _Finder(AnalysisReport(budget=12 * len(text) + 100_000))
    needed = finder.report.has_quoted_lines or not finder.report.certain
    for script in finder.scripts if needed else ():
        for line in dict.fromkeys(re.split(r"[\n\r]+", script.replace("\\\n", "") + "\n" + script)):
            lines.read(line, _TOP_LEVEL)
    certain = finder.report.certain
    return CommandScan(
        tuple(finder.found),
        finder.report.too_deep or lines.report.too_deep,
        finder.report.fork_bomb or (lines.report.fork_bomb and not certain),
        tuple(lines.found),
        certain,
    )


def program_name(word: str) -> str:
    """The name a command goes by: the last part of its path, a pattern resolved to what it may mean."""
    name = word.rstrip("/").rpartition("/")[2]
    if re.search(r"[*?]|\[.*\]", name) and re.sub(r"[*?]|\[[^\]]*\]", "", name):
        return next((known for known in _KNOWN if fnmatchcase(known, name)), name)
    return name


@dataclass(frozen=True, slots=True)
class _ScriptContext:
    """The context of a nested script: its depth, the wrappers around it, its input and its directory."""

    depth: int = 0
    via: tuple[str, ...] = ()
    fed: Span = NOTHING
    texts: tuple[Redirect, ...] = ()
    directory: str = ""


_TOP_LEVEL = _ScriptContext()


class _Finder:
    def __init__(self, report: AnalysisReport) -> None:
        self.report = report
        self.found: list[FoundCommand] = []
        self.scripts: list[str] = []  # texts of several lines
        self.printers: list[int] = []  # indices of commands that print text known from the command line

    def read(self, text: str, place: _ScriptContext) -> None:
        if "\n" in text or "\r" in text:
            self.scripts.append(text)
        raws = read_commands(text, place.depth, self.report)
        starts: list[int] = []
        for raw in raws:
            starts.append(len(self.found))
            self.add_raw(raw, starts, place)
        starts.append(len(self.found))
        self.connect_sinks(raws, starts)

    def add_raw(self, raw: RawCommand, starts: list[int], place: _ScriptContext) -> None:
        index = len(starts) - 1
        fed = place.fed
        if raw.fed != NOTHING and raw.fed[1] <= index:
            fed = (starts[raw.fed[0]], len(self.found) if raw.fed[1] == index else starts[raw.fed[1]])
        command = FoundCommand(
            program_name(raw.words[0]) if raw.words else "",
            raw.words,
            raw.assignments,
            (*raw.redirects, *place.texts),
            (starts[raw.inner[0]], len(self.found)),
            fed,
            place.via,
            place.depth,
            place.directory,
        )
        if raw.group != NOTHING:
            self.feed_group(command, (starts[raw.group[0]], len(self.found)))
        self.add(command)

    def connect_sinks(self, raws: list[RawCommand], starts: list[int]) -> None:
        """`curl u > >(sh)`: the shell stands before what feeds it, so this is known only afterwards."""
        for index, raw in enumerate(raws):
            if raw.fed != NOTHING and raw.fed[1] > index:
                fed = (starts[raw.fed[0]], starts[raw.fed[1]])
                for place in range(starts[index], starts[index + 1]):
                    self.found[place] = replace(self.found[place], fed=fed)

    def feed_group(self, command: FoundCommand, group: Span) -> None:
        """`{ sh; } <<E`: the text goes to a shell inside the group."""
        bodies = [redirect.body for redirect in command.redirects if redirect.body]
        members = self.found[group[0] : group[1]] if bodies else []
        if any(reads_script_from_input(member.program, member.arguments) for member in members):
            for body in bodies:
                self.read(body, _ScriptContext(command.depth + 1, command.via, directory=command.directory))

    def add(self, command: FoundCommand) -> None:
        if command.depth > MAX_NESTING:
            self.report.too_deep = True
        if not self.report.spend(sum(map(len, command.words))):
            return
        if command.program in _PRINTERS or any(redirect.body for redirect in command.redirects):
            self.printers.append(len(self.found))
        self.found.append(command)
        if command.depth > MAX_NESTING * 2:
            return
        via = (*command.via, command.program)
        name, arguments = command.program, command.arguments
        if name.startswith("git-"):
            self.add(replace(command, program="git", words=("git", name[4:], *arguments)))
        for hidden in hidden_commands(name, arguments):
            self.add_hidden(hidden, command, via)
        inside = _ScriptContext(command.depth + 1, via, directory=command.directory)
        if reads_script_from_input(name, arguments):
            for text in self.input_texts(command):
                self.read(text, inside)
        if _runs_substituted(command):
            for text in self.printed_by(command.inner):
                self.read(text, inside)

    def add_hidden(self, hidden: HiddenCommand, command: FoundCommand, via: tuple[str, ...]) -> None:
        depth = command.depth + 1
        directory = join_paths(hidden.directory, command.directory) if hidden.directory else command.directory
        inside = _ScriptContext(depth, via, directory=directory)
        if hidden.script is not None:
            texts = tuple(redirect for redirect in command.redirects if redirect.body)
            self.read(hidden.script, replace(inside, fed=command.fed, texts=texts))
            return
        words = hidden.words
        while words and words[0] in _SKIPPED:  # `time ! rm x`
            words = words[1:]
        if hidden.operands:
            for text in self.input_texts(command):
                if not words:  # a `parallel` without a command runs its input
                    self.read(text, inside)
                elif hidden.placeholder and any(hidden.placeholder in word for word in words):
                    words = tuple(word.replace(hidden.placeholder, text) for word in words)
                else:
                    words = (*words, *text.split())
        if words or hidden.assignments:
            inner = replace(
                command,
                program=program_name(words[0]) if words else "",
                words=words,
                assignments=hidden.assignments,
                via=via,
                depth=depth,
                directory=directory,
            )
            self.add(inner)

    def input_texts(self, command: FoundCommand) -> list[str]:
        """Texts known to reach the command's standard input."""
        texts = [redirect.body for redirect in command.redirects if redirect.body]
        if any(redirect.target.startswith("<()") for redirect in command.redirects):
            texts.extend(self.printed_by(command.inner))
        return [*texts, *self.printed_by(command.fed)]

    def printed_by(self, span: Span) -> list[str]:
        """Texts that the commands of `span` are known to print."""
        texts: list[str] = []
        first = bisect_left(self.printers, span[0])
        last = bisect_left(self.printers, span[1])
        if last - first > _MAX_FEEDERS:
            self.report.too_deep = True
        for index in self.printers[first : min(last, first + _MAX_FEEDERS)]:
            speaker = self.found[index]
            texts.extend(redirect.body for redirect in speaker.redirects if redirect.body)
            if speaker.program in _PRINTERS:
                texts.extend(printed_texts(speaker.program, speaker.arguments))
        return texts


def _runs_substituted(command: FoundCommand) -> bool:
    """Does it run the output of a substitution: `bash <(…)`, `. <(…)`, `sh -c "$(…)"`, `eval "$(…)"`, `$(…)`?"""
    if command.words and command.words[0].startswith("$()"):
        return True
    runs = command.program in SHELLS or command.program in ("eval", ".", "source", "trap")
    return runs and any("$()" in word or "<()" in word for word in command.arguments)
