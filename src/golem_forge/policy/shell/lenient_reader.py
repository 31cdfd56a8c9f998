"""The lenient reader: takes any text, gives every command that stands anywhere in it, as written.

It follows quotes, substitutions, groups, control flow and heredocs. It never raises and never gives up on the rest of a
text because of one part: an unclosed quote is read both as text and as commands, arithmetic `((…))` both as arithmetic
and as groups. Too deep a nesting, or more work than a command text can honestly need, is reported as `too_deep`. Where
shells disagree about what is text and what is a command, the report is no longer `certain`.

Threat: a heredoc whose end is misread either runs data as commands or, worse, hides commands as data. So the rules are
the shell's own, and whatever shells read differently makes the heredoc not `certain`.

One class, because words stand in lists and lists in words: `$(…)`, `${…}` and heredocs lead from each to the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.policy.shell import statements
from golem_forge.policy.shell.statements import BARE, NOTHING, POSITIONAL, QUOTED, SPLIT, AnalysisReport, RawCommand

MAX_NESTING = 8
_HARD_NESTING = 40  # nested this deep the rest is not read at all; keeps Python's own stack safe

_REDIRECT = regex(r"(?:\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>\||>>!|>>|>\||>!|>&|<|>)")
_NAME = regex(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_WORD_END = frozenset(" \t\n\r;&|<>()")
_PLAIN_TEXT = regex(r"[^ \t\n\r;&|<>()\\'\"`$]+")
_DOUBTFUL_ARITHMETIC = regex(r"[#'\"`\\\n]|<<")
_PLAIN_DOUBLE = regex(r"[^\\\"`$]+")


def read_commands(text: str, depth: int, report: AnalysisReport) -> list[RawCommand]:
    raws: list[RawCommand] = []
    _read_into(text.replace("\0", ""), raws, depth, report, loose_left=3)
    return raws


def _read_into(text: str, raws: list[RawCommand], depth: int, report: AnalysisReport, loose_left: int) -> None:
    if depth > MAX_NESTING:
        report.too_deep = True
    if depth > _HARD_NESTING or not report.spend(len(text)):
        return
    report.certain = report.certain and "\r" not in text  # a terminal ends lines there, a shell does not
    reader = LenientReader(text, raws, depth, report)
    while reader.position < len(text):
        reader.read_list("", NOTHING)
    # A shell may have read the opening quote long before this text; then what follows is commands.
    if reader.loose:
        report.certain = False
        report.too_deep = report.too_deep or not loose_left
    for start in reader.loose[:loose_left]:
        _read_into(text[start:], raws, depth, report, loose_left - 1)


class LenientReader:
    def __init__(self, text: str, raws: list[RawCommand], depth: int, report: AnalysisReport) -> None:
        self.text = text
        self.position = 0
        self.raws = raws
        self.depth = depth
        self.report = report
        self.heredocs: list[Heredoc] = []
        self.loose: list[int] = []
        self.brackets = 0  # how many `$(`, `<(` or `>(` are open

    # -- lists of commands

    def read_list(self, closer: str, fed: statements.Span) -> None:
        """Reads commands up to `closer` (`)`, `}` or none: the end of the text)."""
        scope = statements.StatementBuilder(self.raws, fed)
        text = self.text
        piped = False  # after `|` a newline does not end the pipeline
        while self.position < len(text):
            if self.depth + scope.nesting > MAX_NESTING:
                self.report.too_deep = True
            char = text[self.position]
            if char in " \t":
                self.position += 1
            elif char in "\n\r":
                self.position += 1
                if not piped:
                    scope.end_statement()
                if char == "\n":
                    self.read_heredocs()
            elif self.joins_lines():
                self.position += 2
            elif char == "#":
                newline = text.find("\n", self.position)
                self.position = newline if newline >= 0 else len(text)
            elif char in ";&|" and not self.redirect_here():
                piped = self.read_operator(scope)
                continue
            elif char == ")":
                self.position += 1
                if closer == ")" and scope.frames[-1].kind != "case" and not scope.inside("("):
                    break
                scope.close_paren()
            elif text.startswith("((", self.position) and self.skip_arithmetic(2, "))"):
                scope.end_statement()
            elif char == "(":
                self.position += 1
                head = re.compile(r"[ \t]*\)").match(text, self.position)
                if head:
                    self.position = head.end()
                scope.open_paren(empty=head is not None)
            elif match := self.redirect_here():
                self.read_redirect(match, scope)
            elif char == "}" and closer == "}" and scope.at_command and not scope.inside("{"):
                self.position += 1
                break
            else:
                written = self.read_word(scope)
                self.report.too_deep = self.report.too_deep or statements.has_too_many_braces(written)
                for word in statements.finish_word(written):
                    scope.add_word(word)
            piped = piped and char in " \t\n\r#"
        scope.end()
        self.report.fork_bomb = self.report.fork_bomb or scope.fork_bomb

    def read_operator(self, scope: statements.StatementBuilder) -> bool:
        """Reads an operator between commands. Returns True for a pipe."""
        pair = self.text[self.position : self.position + 2]
        if pair in ("&&", "||"):
            self.position += 2
            scope.end_statement()
            return False
        self.position += 2 if pair == "|&" else 1
        if pair[0] == "|":
            scope.pipe()
        else:
            scope.end_statement(background=pair[0] == "&")
        return pair[0] == "|"

    # -- redirections

    def redirect_here(self) -> re.Match[str] | None:
        match = _REDIRECT.match(self.text, self.position)
        if match and match[0] in ("<", ">") and self.text[match.end() : match.end() + 1] == "(":
            return None  # process substitution, part of a word
        return match

    def read_redirect(self, match: re.Match[str], scope: statements.StatementBuilder) -> None:
        operator = match[1]
        self.position = match.end()
        while self.text[self.position : self.position + 1] in (" ", "\t") or self.joins_lines():
            self.position += 2 if self.joins_lines() else 1
        redirects = scope.draft.redirects
        if operator in ("<<", "<<-"):
            heredoc = Heredoc.announced(operator, redirects, self.text, self.position)
            self.position += len(heredoc.written)
            self.heredocs.append(heredoc)
            return
        written = self.read_word(scope)
        target = written.text.replace(SPLIT, "")
        redirects.append(statements.Redirect(operator, target, target if operator == "<<<" else None))
        if operator != "<<<":  # `> /{dev,tmp}/x`: some shells write to each
            expanded = (word.text for word in statements.finish_word(written))
            redirects.extend(statements.Redirect(operator, text) for text in expanded if text != target)

    def joins_lines(self) -> bool:
        return self.text.startswith("\\\n", self.position)

    def read_heredocs(self) -> None:
        waiting, self.heredocs = self.heredocs, []
        for heredoc in waiting:
            self.report.has_quoted_lines = True
            start = self.position
            body, self.position, ended = heredoc.take_body(self.text, start, in_brackets=self.brackets > 0)
            self.report.certain = self.report.certain and heredoc.certain
            if not ended:
                self.loose.append(start)  # the ending may have been misread
            if heredoc.expands and ("$" in body or "`" in body) and self.report.spend(len(body)):
                inner = LenientReader(body, self.raws, self.depth, self.report)
                inner.read_expansions(len(body))

    # -- words

    def read_word(self, scope: statements.StatementBuilder) -> statements.ShellWord:
        pieces = statements.WordBuilder()
        text = self.text
        while self.position < len(text):
            char = text[self.position]
            if plain := _PLAIN_TEXT.match(text, self.position):
                pieces.add(plain[0], BARE)
                self.position = plain.end()
            elif char == "\\":
                if not self.joins_lines():
                    pieces.add(text[self.position + 1 : self.position + 2], QUOTED)
                self.position += 2
            elif char == "'":
                self.read_single(pieces)
            elif char == '"':
                self.read_double(pieces)
            elif char in "`$":
                self.read_expansion(pieces, BARE)
            elif char in "<>" and text.startswith("(", self.position + 1):
                self.read_process(pieces, scope)
            elif char in _WORD_END:
                break
        return pieces.word()

    def read_single(self, pieces: statements.WordBuilder) -> None:
        start = self.position + 1
        pieces.add(self.text[start : self.find_close("'", start)], QUOTED)
        self.note_lines(start)

    def note_lines(self, start: int) -> None:
        if not self.report.has_quoted_lines and self.text.find("\n", start, self.position) >= 0:
            self.report.has_quoted_lines = True

    def find_close(self, mark: str, start: int) -> int:
        end = self.text.find(mark, start)
        if end < 0:
            self.loose.append(start)
            end = len(self.text)
        self.position = end + 1
        return end

    def read_double(self, pieces: statements.WordBuilder) -> None:
        """Reads a double-quoted part; the position is at the opening quote."""
        self.position += 1
        text, start = self.text, self.position
        while self.position < len(text):
            char = text[self.position]
            if plain := _PLAIN_DOUBLE.match(text, self.position):
                pieces.add(plain[0], QUOTED)
                self.position = plain.end()
            elif char == '"':
                self.position += 1
                self.note_lines(start)
                return
            elif char == "\\":
                following = text[self.position + 1 : self.position + 2]
                if following != "\n":
                    pieces.add(following if following in '$`"\\' else "\\" + following, QUOTED)
                self.position += 2
            else:
                self.read_expansion(pieces, QUOTED)
        self.loose.append(start)

    def read_expansion(self, pieces: statements.WordBuilder, kind: str) -> None:
        """Reads an expansion; the position is at a backtick or `$`."""
        (self.read_backtick if self.text[self.position] == "`" else self.read_dollar)(pieces, kind)

    def read_backtick(self, pieces: statements.WordBuilder, kind: str) -> None:
        start = self.position + 1
        match = re.compile(r"(?:[^`\\]|\\.)*", re.DOTALL).match(self.text, start)
        end = match.end() if match else start
        if end >= len(self.text):
            self.loose.append(start)
        self.position = end + 1
        content = re.sub(r"\\([`\\$])", r"\1", self.text[start:end])
        self.substitute(pieces, kind, lambda: _read_into(content, self.raws, self.depth + 1, self.report, 1))

    def read_dollar(self, pieces: statements.WordBuilder, kind: str) -> None:
        text, start = self.text, self.position
        following = text[start + 1 : start + 2]
        if following == "'" and kind == BARE:
            match = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL).match(text, start + 2)
            end = match.end() if match else start + 2
            pieces.add(statements.decode_escapes(text[start + 2 : end]), QUOTED)
            self.find_close("'", end)
            self.note_lines(start)
        elif following == '"' and kind == BARE:
            self.position += 1
            self.read_double(pieces)
        elif following == "(":
            self.read_parenthesis(pieces, kind)
        elif following == "[" and self.skip_arithmetic(2, "]"):
            pieces.add("$(())", QUOTED)
        elif following == "{":
            self.position = start + 2
            self.descend(lambda: self.read_parameter(pieces, kind))
        elif name := _NAME.match(text, start + 1):
            self.position = name.end()
            self.add_variable(pieces, name[0], text[start : self.position], kind)
        else:
            self.position += 1
            pieces.add("$", kind)

    def read_parenthesis(self, pieces: statements.WordBuilder, kind: str) -> None:
        """Reads from `$(` on: a command substitution, or arithmetic if it can be nothing else."""
        if self.text.startswith("$((", self.position) and self.skip_arithmetic(3, "))"):
            pieces.add("$(())", QUOTED)
            return
        self.position += 2
        self.substitute(pieces, kind, lambda: self.nested(")"))

    def add_variable(self, pieces: statements.WordBuilder, name: str, written: str, kind: str) -> None:
        if name == "IFS" and kind == BARE:
            pieces.add(SPLIT, BARE)
        elif name in "123456789@*":
            pieces.add(written, POSITIONAL)
        else:
            pieces.add("$" + name if written == "${" + name + "}" else written, QUOTED)

    def read_parameter(self, pieces: statements.WordBuilder, kind: str) -> None:
        """Reads a parameter expansion; the position is after `${`."""
        text, start = self.text, self.position
        if text[start : start + 1] in (" ", "\t", "\n", "|"):
            self.position += 1
            self.substitute(pieces, kind, lambda: self.nested("}"))
            return
        aside = statements.WordBuilder()  # the value's own spelling is of no interest, the commands in it are
        while self.position < len(text):
            char = text[self.position]
            if char == "}":
                name = _NAME.match(text, start)
                self.position += 1
                self.add_variable(pieces, name[0] if name else "?", text[start - 2 : self.position], kind)
                return
            if char == "\\":
                self.position += 2
            elif char == "'" and kind == BARE:
                self.read_single(aside)
            elif char == '"':
                self.read_double(aside)
            elif char in "`$":
                self.read_expansion(aside, QUOTED)
            else:
                self.position += 1
        self.loose.append(start)

    def skip_arithmetic(self, opening: int, closer: str) -> bool:
        """Reads `((…))`, `$((…))` or `$[…]`; false if this must be a group or substitution instead.

        In arithmetic `<<` is no heredoc and `#` no comment. A shell that has no such arithmetic runs the inside, so
        it is read as commands too, apart from what follows.
        """
        start = self.position + opening
        end = arithmetic_end(self.text, start, closer, self.report)
        if end is None:
            self.report.certain = False
            return False
        inside = self.text[start:end]
        if _DOUBTFUL_ARITHMETIC.search(inside):
            self.report.certain = False
        self.position = start
        self.descend(lambda: self.read_expansions(end))
        if opening + len(closer) != 5:  # `$((` is arithmetic in every shell
            _read_into(inside, self.raws, self.depth + opening + len(closer) - 2, self.report, 1)
        self.position = max(self.position, end + len(closer))
        return True

    def read_expansions(self, end: int) -> None:
        """Substitutions in text that is otherwise not commands: arithmetic, heredoc bodies."""
        aside = statements.WordBuilder()
        while self.position < end:
            char = self.text[self.position]
            if char == "\\":
                self.position += 2
            elif char in "`$":
                self.read_expansion(aside, QUOTED)
            else:
                self.position += 1

    def read_process(self, pieces: statements.WordBuilder, scope: statements.StatementBuilder) -> None:
        written = self.text[self.position]
        self.position += 2
        start = len(self.raws)
        self.nested(")")
        if written == ">":
            scope.draft.sinks.append((start, len(self.raws)))
        pieces.add(f"{written}()", QUOTED)

    def nested(self, closer: str) -> None:
        self.brackets += closer == ")"
        self.descend(lambda: self.read_list(closer, NOTHING))
        self.brackets -= closer == ")"

    def descend(self, read: Callable[[], None]) -> None:
        if self.heredocs:
            self.report.certain = False  # its text may begin inside or after the brackets
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.report.too_deep = True
        if self.depth > _HARD_NESTING:
            self.position = len(self.text)
        else:
            read()
        if self.heredocs:
            self.report.certain = False
        self.depth -= 1

    def substitute(self, pieces: statements.WordBuilder, kind: str, read: Callable[[], None]) -> None:
        """Reads a substitution; one that only echoes literal words is replaced by them."""
        start = len(self.raws)
        read()
        found = self.raws[start:]
        if len(found) == 1 and found[0].words[:1] in (("echo",), ("printf",)) and not found[0].redirects:
            printed = statements.printed_texts(found[0].words[0], found[0].words[1:])
            if printed and printed[-1]:
                text = printed[-1].rstrip("\n")
                pieces.add(re.sub(r"\s+", SPLIT, text) if kind == BARE else text, kind)
                return
        pieces.add("$()", QUOTED)


_DELIMITER = regex(r"(?:\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\([^)\n]*\)|`[^`\n]*`|[^ \t\n;&|<>()\\'\"])+", re.DOTALL)
_PLAIN_DELIMITER = regex(r"\\?[\w.!%+-]+|'[\w.!%+ -]+'|\"[\w.!%+ -]+\"")
_QUOTED_PART = regex(r"\\(.)|'([^']*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)


@dataclass(slots=True)
class Heredoc:
    """One announced heredoc; `redirects` are its command's, and the entry at `place` gets the text."""

    redirects: list[statements.Redirect]
    place: int
    written: str
    strip_tabs: bool
    certain: bool = True

    @classmethod
    def announced(cls, operator: str, redirects: list[statements.Redirect], text: str, position: int) -> Heredoc:
        match = _DELIMITER.match(text, position)
        written = match[0] if match else ""
        heredoc = cls(redirects, len(redirects), written, operator == "<<-", bool(_PLAIN_DELIMITER.fullmatch(written)))
        redirects.append(statements.Redirect(operator, heredoc.ending))
        return heredoc

    @property
    def ending(self) -> str:
        def unquoted(part: re.Match[str]) -> str:
            if part[3] is not None:
                return re.sub(r"\\([$`\"\\])", r"\1", part[3])
            return (part[1] or "") + (part[2] or "")

        return _QUOTED_PART.sub(unquoted, self.written)

    @property
    def expands(self) -> bool:
        """Substitutions in the text are run unless any part of the ending was quoted."""
        return not re.search(r"[\\'\"]", self.written)

    def take_body(self, text: str, position: int, *, in_brackets: bool) -> tuple[str, int, bool]:
        """The text from `position` on, where it stops, and whether its ending was found."""
        endings = {self.ending, self.ending.removeprefix("$")}  # `<<$'E'`: shells disagree
        lines: list[str] = []
        ended = continued = False
        while position < len(text) and not ended:
            newline = text.find("\n", position)
            end = newline if newline >= 0 else len(text)
            line = text[position:end]
            shown = line.lstrip("\t") if self.strip_tabs else line
            if shown in endings and not continued:
                position, ended = min(end + 1, len(text)), True
            elif in_brackets and any(word and re.match(re.escape(word) + r"\s*\)", shown) for word in endings):
                # `$(cat <<E … E)`: the bracket still counts
                position, ended, self.certain = position + line.index(")"), True, False
            else:
                lines.append(shown)
                position = end + 1
                # A backslash joins the next line to this one, so that line cannot be the ending.
                continued = self.expands and (len(line) - len(line.rstrip("\\"))) % 2 == 1
                self.certain = self.certain and not continued
        body = "\n".join(lines)
        self.redirects[self.place] = statements.Redirect(self.redirects[self.place].operator, self.ending, body)
        return body, min(position, len(text)), ended


_BRACKETS = regex(r"[()\[\]]")


def arithmetic_end(text: str, start: int, closer: str, report: AnalysisReport) -> int | None:
    """Returns the position of the closing bracket of arithmetic; None if the brackets do not match."""
    if not report.spend(0):
        return None  # looking for brackets that never close takes long
    level = 0
    opening, closing = ("[", "]") if closer == "]" else ("(", ")")
    for match in _BRACKETS.finditer(text, start):
        if match[0] == opening:
            level += 1
        elif match[0] == closing:
            if level == 0:
                end = match.start()
                report.spend(end - start)
                return end if text.startswith(closer, end) else None
            level -= 1
    report.spend(len(text) - start)
    return None
