"""Lines of an output in which a program says that the system refused it something: what it tried, and at which path.

Takes a text, gives ErrorLines. Programs have no common form for this, so a line is read for evidence: which error it
was, which access its words speak of, and which of its words are names. What is no evidence is left open (`access` is
None) or left out; whoever has the plan of the walls decides. Threat: the text is a stranger's, so it is bounded and
read with patterns that cannot backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from golem_forge.core.effects import Verb

WINDOW: Final = 256 * 1024
"""So much of the beginning and of the end of an output is looked at."""
_LINE: Final = 1024
"""So much on either side of an error text."""
_LINES_ABOVE: Final = 600
_MOST_LINES: Final = 1000
_MOST_WORDS: Final = 60
_MOST_WORDS_OF_A_NAME: Final = 4


class Refused(Enum):
    """What kind of error it was."""

    CHANGES = "changes"
    """A read-only file system, or a mount point that can be neither moved nor removed: refuses no reading."""
    ACCESS = "access"
    """A missing right to this file, for whatever was tried."""
    OPERATION = "operation"
    """A missing right to do such a thing at all. Walls answer so to who changes attributes, never to a reader."""


class Names(NamedTuple):
    words: tuple[str, ...]
    certain: bool
    """One of them is what the error is about; otherwise they are only other words of the line that look like paths."""


class ErrorLine(NamedTuple):
    error: Refused
    access: Verb | None
    """None: the line does not say what was tried."""
    names: tuple[Names, ...]
    """Surest first."""


_ERROR: Final = re.compile(
    r"(?P<busy>read-only file system|device or resource busy|\bEROFS\b(?:: read-only file system)?"
    r"|\bEBUSY\b(?:: resource busy or locked)?)"
    r"|(?P<access>permission denied|\bEACCES\b(?:: permission denied)?|\bAccessDeniedException\b)"
    r"|(?P<operation>operation not permitted|\bEPERM\b(?:: operation not permitted)?)",
    re.IGNORECASE,
)
_KINDS: Final = {"busy": Refused.CHANGES, "access": Refused.ACCESS, "operation": Refused.OPERATION}
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}[mK]")
_QUOTED: Final = re.compile(
    r"'([^'\n]{1,1024})'|\"([^\"\n]{1,1024})\"|`([^`'\n]{1,1024})[`']|[‘“]([^‘’“”\n]{1,1024})[’”]"
)
_BETWEEN_WORDS: Final = re.compile(r"[\s()\[\]{}<>=,;:'\"`‘’“”|]+")
_NUMBERED: Final = re.compile(r"[\[(](?:Errno|os error|error|code)?[: ]{0,2}-?\d{1,3}[\])]\s*$", re.IGNORECASE)
"""`[Errno 13]`, `(os error 13)`: another form of the error itself."""
_BEFORE_AFTER: Final = re.compile(r"\)?\s*(?:failed|for (?:reading|writing|output|input))?[:,(]?\s*$")
"""What may stand between a quoted name and the error behind it."""
_AFTER_BEFORE: Final = re.compile(r"\s*(?:\([^()]{0,40}\))?[:,]\s*(?:[\w/]{1,24} )?$")
"""What may stand between an error and a quoted name behind it: `, open '…'`, `: '…'`."""
_RUBY: Final = re.compile(r" @ (\w{1,40}) - (.{1,1024}?)(?: \(Errno::\w{1,20}\))?$")
_REDIRECTED: Final = re.compile(r"redirecting file '([^'\n]{1,1024})'\s*$")
_CAUSE: Final = re.compile(r"\s*(?:\d{1,3}: )?$")

_DELETES: Final = re.compile(r"\b(?:remov\w{1,5}|unlink\w{0,4}|rmdir|delet\w{1,4}|rm)\b", re.IGNORECASE)
_FOR_READING: Final = re.compile(r"\bfor (?:reading|read|input)\b", re.IGNORECASE)
_WRITES: Final = re.compile(
    r"\b(?:creat\w{1,4}|(?:over|re)?writ\w{1,5}|\w{0,12}put_contents|touch\w{0,3}|tee|for output|output file|temporary"
    r"|mk(?:dir|fifo|nod|temp|stemp|dtemp)\w{0,3}|lock\w{0,3}|renam\w{1,4}|mov(?:e|ing)|mv|append\w{0,3}|f?truncat\w{1,3}"
    r"|ch(?:mod|own|grp)\w{0,3}|chang(?:e|ing) (?:permissions|owner\w{0,4}|mode|group)|utim\w{1,6}|[lf]?setxattr"
    r"|(?:set|setting|preserving) (?:times?|permissions|mode|owner\w{0,4}|timestamps?)|apply2files"
    r"|sym\w{0,3}link\w{0,3}|symbolic link|hard link|link(?:at|ing)?|ln|listen|bind|sav(?:e|ing)|updat(?:e|ing)"
    r"|(?:un)?pack(?:ing)?|extract\w{0,3}|install\w{0,3})\b",
    re.IGNORECASE,
)
_NOT_ABLE: Final = r"(?:can ?not|can't|could ?n[o']t|failed to|unable to)"
_READS: Final = re.compile(
    rf"\b(?:{_NOT_ABLE} (?:access|stat|open directory|read\w{{0,3}}|load|run|import)|can't open file|error reading"
    r"|read(?:ing|dir|link|File|FileSync)?|(?:open|scan)dir|l?stat|execut\w{1,3}|exec\w{0,3}|spawn\w{0,4}|interpreter"
    r"|chdir|cd|connect|dial|perl script|script file)\b",
    re.IGNORECASE,
)
_READERS: Final = re.compile(
    r"(?:/[\w/.-]{0,200}/)?(?:cat|head|tail|tac|less|more|grep|egrep|fgrep|rg|ag|ls|find|fd|tree|wc|diff|cmp|comm|uniq"
    r"|stat|file|od|xxd|hexdump|strings|awk|gawk|mawk|nl|cut|base64|base32|cksum|md5sum|sha\d{1,3}sum|b2sum|du|jq|env"
    r"|nice|nohup|timeout|setsid|stdbuf|xargs|time|make|gmake|cc1|cc1plus|python[\d.]{0,5}|node|ruby|perl): "
)
"""What only reads, or runs, was refused that: a missing right to change the same path is no evidence of walls."""
_EXCEPTION: Final = re.compile(r"[\w.]{1,100}(?:Error|Exception): ")
_STARTS: Final = re.compile(r"_execute_child|posix_spawn|execv")
"""In the lines above an exception: what was tried is to start a program."""
_SHELL: Final = re.compile(r"(?:\S{0,200}: (?:line )?\d{1,6}|(?:\S{0,200}/)?\w{0,4}sh): [^:]{1,1024}: ?$")
_COULD_NOT_EXECUTE: Final = 126
"""How a shell ends when it found a program and was not allowed to run it."""

_ONLY_SAYS_SO: Final = re.compile(
    rf"(?:{_NOT_ABLE}|failed) ?(?:open|mkdir|stat|read|write|create|execute|exec|unlink|remove|rename|utime|close|run"
    r"|access|open stream|change mode|change ownership)?(?: for (?:reading|writing|output|input))?",
    re.IGNORECASE,
)
"""A part of a line without a name: `tar: x: Cannot open: …`."""
_NAMES_ONE: Final = re.compile(
    rf"(?:(?:{_NOT_ABLE}|error|while) )?"
    r"(?:open\w{0,3}|creat\w{1,4}|read\w{0,3}|writ\w{1,4}|touch|mkdir|make|remov\w{1,4}|unlink(?:at)?|delete|rename|move"
    r"|copy|l?stat|access|execute|(?:fork/)?exec|run|load|lock|truncate|save|append|chmod|chown|chdir|readlink"
    r"|(?:sym)?link)\b"
    r"(?: (?:config|output|input|regular|temporary|lock|log|file|directory|dir|at|to|the|perl|script|symbolic|hard"
    r"|link)\b)* ",
    re.IGNORECASE,
)
"""What a bare word follows that is a name: `cannot create notes`, `open notes`."""
_NO_NAME: Final = re.compile(
    r"(?i:errno|fatal|error|warning|warn|info|note|notice|debug|trace|fail(?:ed|ure)?|denied|exception|code|status|open"
    r"|read(?:ing)?|writ(?:e|ing)|exec|mkdir|rename|unlink|stat|syscall|kind|message|line|file|directory|path|process"
    r"|ID|null|none|nil|true|false)"
    r"|\w{0,60}(?:Error|Exception)|[\d.:+,-]{1,60}"
)
_PARAMETER: Final = re.compile(r"(?<=/)\[{1,2}\.{0,3}[\w-]{1,60}\]{1,2}")
"""`app/[id]/x`: directories are called so."""
_NOT_IN_A_WORD: Final = re.compile(r"[\[\]{}()<>=,;|\"'`*$?!\\]|::")


def error_lines(text: str, exit_code: int | None = None) -> Iterator[ErrorLine]:
    """Those with an error text and a name, in order. `exit_code`: of the whole, which tells how a shell ended."""
    pieces = (text,) if len(text) <= 2 * WINDOW else (text[:WINDOW], text[-WINDOW:])
    found = islice((line for piece in pieces for line in _raw_lines(piece)), _MOST_LINES)
    return (read for line in found if (read := _read(line, exit_code)) is not None)


class _Raw(NamedTuple):
    kind: Refused
    before: str
    after: str
    above: str
    """What stands in the lines above."""


def _raw_lines(piece: str) -> Iterator[_Raw]:
    """Lines with an error text, divided at their first one."""
    seen = -1
    for match in _ERROR.finditer(piece):
        start, end = match.span()
        if 0 <= seen <= start and piece.find("\n", seen, start) < 0:
            seen = end
            continue
        seen = end
        begin = max(start - _LINE, piece.rfind("\n", max(0, start - _LINE), start) + 1, 0)
        stop = piece.find("\n", end, end + _LINE)
        before = _COLOUR.sub("", piece[begin:start])
        after = _COLOUR.sub("", piece[end : stop if stop >= 0 else end + _LINE])
        yield _Raw(
            _KINDS[match.lastgroup or ""],
            before,
            after.rstrip(),
            _COLOUR.sub("", piece[max(0, begin - _LINES_ABOVE) : begin]),
        )


def _read(line: _Raw, exit_code: int | None) -> ErrorLine | None:
    before, after = _NUMBERED.sub("", line.before), line.after
    if (told := _told_above(before, line.above)) is not None:
        before, after = told, ""
    access = _access(before, after)
    if line.kind is Refused.CHANGES and access is not Verb.DELETE:
        access = Verb.WRITE
    if line.kind is Refused.OPERATION and access not in (Verb.WRITE, Verb.DELETE):
        return None
    if access is None and (
        (exit_code == _COULD_NOT_EXECUTE and _SHELL.match(before))
        or (_EXCEPTION.match(before) and _STARTS.search(line.above))
    ):
        access = Verb.READ
    names = tuple(group for group in _names(before, after, bare=line.kind is not Refused.OPERATION) if group.words)
    return ErrorLine(line.kind, access, names) if names else None


def _told_above(before: str, above: str) -> str | None:
    """What was being done, where a line has nothing but the error and those above it say the rest."""
    lines = above.rstrip("\n").split("\n")
    if redirected := _REDIRECTED.search(lines[-1]):  # fish
        return f"'{redirected[1]}'" if re.fullmatch(r"\w{1,20}: ?", before) else None
    if not _CAUSE.fullmatch(before):
        return None
    told: list[str] = []
    caused = False
    for one in reversed(lines[-8:]):
        if one.strip() == "Caused by:":
            caused = True
        elif one.strip():
            told.append(one.strip())
            if caused:
                break
    return told[0] if caused and told else None


def _access(before: str, after: str) -> Verb | None:
    """What the words of the line say was tried; names are no words."""
    if ruby := _RUBY.match(after):  # "in `unlink': …": the name of the method is what was tried
        said = " ".join((_BETWEEN_WORDS.sub(" ", before), ruby[1].replace("_", " ")))
    else:
        said = f"{_words(before)} {_words(after)}"
    if _DELETES.search(said):
        return Verb.DELETE
    if _FOR_READING.search(said):
        return Verb.READ
    if _WRITES.search(said):
        return Verb.WRITE
    return Verb.READ if _READERS.match(before) or _READS.search(said) else None


def _words(text: str) -> str:
    unquoted = _QUOTED.sub(" ", text)
    return " ".join(word for word in unquoted.split() if not _is_path(word) or word == "fork/exec")


def _names(before: str, after: str, *, bare: bool) -> Iterator[Names]:
    """`bare`: a word that is nothing but a word may be a name too, where the form of the line says so."""
    if ruby := _RUBY.match(after):
        pair = ruby[2].strip("()").split(", ") if ruby[2].startswith("(") else [ruby[2]]
        yield Names(tuple(pair), True)
        return
    quoted = [*_quoted(before, behind=False), *_quoted(after, behind=True)]
    if quoted:
        yield Names(tuple(name for name, _ in quoted[:_MOST_WORDS]), any(certain for _, certain in quoted))
    spoken = tuple(_just_before(before, bare))
    yield Names(spoken, bool(spoken))
    if after.startswith((": ", ", ")) and not _QUOTED.search(after):  # `zsh:1: permission denied: x`
        name = after[2:].strip()
        if _is_path(name.split(" ")[0]) or (
            bare and re.fullmatch(r"\w{0,4}sh:(?:\d{1,6}:)? ?", before) and _is_name(name)
        ):
            yield Names((name,), True)
    program, _, rest = before.partition(": ")
    if not program.strip() or not rest:  # otherwise it says who speaks, and is no name
        rest = before
    words = _BETWEEN_WORDS.split(f"{rest} {after}")[:_MOST_WORDS]
    yield Names(tuple(word for word in words if _is_path(word)), False)


def _quoted(text: str, *, behind: bool) -> Iterator[tuple[str, bool]]:
    """Names in quotes, and whether the error is about them: they stand next to it, or are joined to one that does."""
    found = list(islice(_QUOTED.finditer(text), _MOST_WORDS))
    for index, match in enumerate(found):
        name = match[match.lastindex or 0]
        if behind:
            beside = bool(_AFTER_BEFORE.match(text[: match.start()])) or (
                index > 0 and text[found[index - 1].end() : match.start()].strip() in ("->", "to", "=>")
            )
        else:
            beside = bool(_BEFORE_AFTER.match(text[match.end() :]))
        if _ERROR.fullmatch(name):
            continue
        if beside or (_is_path(name) and "://" not in name):
            yield name, beside


def _just_before(before: str, bare: bool) -> Iterator[str]:
    """The last word, the last two, …: a name may have spaces in it."""
    if not before.rstrip().endswith((":", "(")):
        return
    text = before.rstrip().removesuffix(":").removesuffix("(").rstrip().removesuffix(":").rstrip()
    segments = [segment.strip() for segment in text.split(": ")]
    while len(segments) > 1 and (_ONLY_SAYS_SO.fullmatch(segments[-1]) or _is_verb(segments[-1])):
        segments.pop()
    last = segments[-1]
    if last.endswith(")") and "(" in last and _is_path(inner := last[last.rindex("(") + 1 : -1].strip("'\"")):
        yield inner  # `file_put_contents(x)`
        return
    words = last.split()
    if not words:
        return
    if not _is_path(words[-1]):
        if not bare or not _is_name(words[-1]) or _QUOTED.search(last):
            return
        speaks = _NAMES_ONE.match(last + " ")
        if not (len(words) == 1 and len(segments) > 1) and not (speaks and len(speaks[0].split()) < len(words)):
            return  # `ssh: Permission denied`: the program speaks of no file
    for count in range(1, min(len(words), _MOST_WORDS_OF_A_NAME) + 1):
        name = " ".join(words[-count:]).strip("'\"`‘’“”")
        yield name
        if words[-count].startswith("/"):  # `cannot create /etc/x`: nothing before it is part of the name
            return


def _is_path(word: str) -> bool:
    """By its form alone: `/x`, `./x`, `a/b`, `.env`; neither `Errno::EACCES`, nor `[x]`, nor `1/2`, nor an option."""
    word = word.strip("'\"`‘’“”").rstrip(",;:")
    if "/" not in word and not (word.startswith(".") and len(word.strip(".")) > 0):
        return False
    return _is_name(word)


def _is_name(word: str) -> bool:
    """Whether an unquoted word can be a name at all."""
    word = word.strip("'\"`‘’“”").rstrip(",;:")
    if not word or word.startswith(("-", "~")) or _NOT_IN_A_WORD.search(_PARAMETER.sub("", word)):
        return False
    if _ERROR.fullmatch(word):
        return False
    return _NO_NAME.fullmatch(word) is None and not _is_verb(word) and any(char.isalpha() for char in word)


def _is_verb(word: str) -> bool:
    return any(verbs.fullmatch(word) for verbs in (_DELETES, _WRITES, _READS))
