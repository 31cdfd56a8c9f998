"""Denials as facts: which refusals of a call's walls its output, its end and its proxy give evidence of.

Takes the wall plan, the output as the caller reads it, and how the child ended. Returns `{kind, target, access,
why, widen}` for each. Text alone proves nothing: an error line counts only if it names a path at which this very
plan refuses what the line is about. `widen` is what a user could change so that the refusal does not come again:
lines to paste, each with its file. Nothing here changes policy, and a model that reads a proposal cannot accept it.

Programs have no common form for errors, so `error_lines` reads a line for evidence: which error it was, which
access its words speak of, which of its words are names. Threat: the output is a stranger's; it is bounded, read
with patterns that cannot backtrack, and can only ever repeat what the walls refuse anyway.
"""

from __future__ import annotations

import posixpath
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple

from golem_forge.core.effects import Mark, Verb
from golem_forge.core.globs import GROUP_PREFIX
from golem_forge.core.regex import regex
from golem_forge.core.text import clip, escape_control_chars, process_link
from golem_forge.sandbox.errors import one_line
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.network.registries import group_of_place
from golem_forge.sandbox.protected import GIT_FILE, INSTALL_OUTSIDE, PROTECTED_NAMES, marks
from golem_forge.sandbox.walls.exits import exit_denials
from golem_forge.sandbox.walls.model import Refusal, RefusalReason, WallPlan
from golem_forge.sandbox.zones import is_zone_name

MOST_DENIALS: Final = 20
_LONGEST_SHOWN: Final = 512
_IN_ONE_LINE: Final = 5
_REASON_TEXTS: Final = {
    RefusalReason.PROTECTED: "protected",
    RefusalReason.SECRET: "secret",
    RefusalReason.SEALED: "a socket or a FIFO from outside the command, or a directory that could not be searched",
    RefusalReason.OWN_CODE: "Forge's own code",
    RefusalReason.RULE: "a path rule",
    RefusalReason.NOT_KEPT: "it could not be undone",
    RefusalReason.ZONE: "read-only zone",
    RefusalReason.OUTSIDE: "outside every zone",
}
_DENIAL_KINDS: Final = {
    RefusalReason.PROTECTED: "protected",
    RefusalReason.OWN_CODE: "protected",
    RefusalReason.SECRET: "secret",
}


def find_denials(
    plan: WallPlan,
    text: str,
    *,
    exit_code: int | None = None,
    signal_number: int | None = None,
    refused_hosts: Iterable[Mapping[str, Any]] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], ...]:
    """The denials there is evidence of, in order of appearance, each once, at most 20.

    `refused_hosts`: `{host, port, why}` as the proxy recorded them. `environ`: the person's own, which says where their
    sockets are; None: nobody looks for devices and sockets that the command missed.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    by_git = _tracked_secrets(plan, text) if exit_code else ()
    by_system = _system_call(text, exit_code, signal_number)
    missed = exit_denials(text, plan.exits, environ) if exit_code and environ is not None else ()
    for one in (*by_system, *_hosts(refused_hosts), *_paths(plan, text, exit_code), *by_git, *missed):
        found.setdefault((one["kind"], one["target"], one["access"]), one)
        if len(found) == MOST_DENIALS:
            break
    return tuple(found.values())


_NOBODY: Final = "Nothing"
"""The first word of the advice if no person can allow it."""


def blocked_line(denials: Sequence[Mapping[str, Any]]) -> str:
    """`Blocked by the sandbox: write /workspace/.git/hooks/pre-commit (protected).`; empty if nothing was."""
    if not denials:
        return ""
    shown = "; ".join(f"{one['access']} {one['target']} ({one['why']})" for one in denials[:_IN_ONE_LINE])
    more = f"; and {len(denials) - _IN_ONE_LINE} more" if len(denials) > _IN_ONE_LINE else ""
    return f"Blocked by the sandbox: {shown}{more}."


def way_line(denials: Sequence[Mapping[str, Any]]) -> str:
    """Returns one sentence on how a person can allow the first refusal, for a model to pass on; empty if nothing was
    refused.
    """
    ways = dict.fromkeys(one["widen"] for one in denials if one.get("widen"))
    if not ways:
        return ""
    more = f" ({len(ways) - 1} more in `denials`)" if len(ways) > 1 else ""
    first = next(iter(ways))
    return f"{first}{more}" if first.startswith(_NOBODY) else f"A person can allow it, you cannot: {first}{more}"


def host_advice(denials: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each refused host on how to allow it: the rule for a private address, or the group of a
    package registry.
    """
    said: dict[str, None] = {}
    for one in denials:
        if one["kind"] != "host":
            continue
        host, _, port = str(one["target"]).rpartition(":")
        if "private" in str(one["why"]):
            said[f"To allow it, add to {one['widen']}"] = None
        elif (group := group_of_place((host.strip("[]"), int(port)), person_environ())) is not None:
            said[f"{one['target']} belongs to {GROUP_PREFIX}{group.value}: name that in 'network'."] = None
    return list(said)[:_IN_ONE_LINE]


def _reason_text(refusal: Refusal) -> str:
    text = _REASON_TEXTS[refusal.why]
    return f"{text}: {one_line(refusal.detail)}" if refusal.detail else text


def _denial(kind: str, target: str, access: str, why: str, widen: str) -> dict[str, Any]:
    return {"kind": kind, "target": target, "access": access, "why": why, "widen": widen}


def _system_call(text: str, exit_code: int | None, number: int | None) -> Iterator[dict[str, Any]]:
    """A shell reports the death of its command by exit code and text; the code alone could be anyone's."""
    dead = number == signal.SIGSYS
    told = exit_code == 128 + signal.SIGSYS and "Bad system call" in text[-WINDOW:]
    if dead or told:
        widen = f"{_NOBODY} lifts this one; run the program yourself, outside Forge."
        yield _denial("syscall", "a system call", "make", "refused to every child", widen)


def _hosts(refused: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in refused:
        host, port, why = str(one["host"]), int(one["port"]), str(one["why"])
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        yield _denial("host", _shown(target), "connect", why, widen_host(host, port, private="private" in why))


def _paths(plan: WallPlan, text: str, exit_code: int | None) -> Iterator[dict[str, Any]]:
    asked: dict[tuple[str, ErrorKind, Verb | None, bool], Refusal | None] = {}
    for line in error_lines(text, exit_code):
        for names in line.names:
            refused: list[Refusal] = []
            paths = {name: path for name in names.words if (path := _absolute(name, plan.cwd))}
            for name, path in paths.items():
                certain = names.certain or name.startswith("/")
                key = (path, line.error, line.access, certain)
                if key not in asked:
                    asked[key] = _refusal(plan, path, line, certain=certain)
                if (refusal := asked[key]) is not None:
                    refused.append(refusal)
            if refused:  # `cannot copy '/usr/x' to '.git/x'`: what a zone holds is meant sooner than what lies outside
                meant = min(refused, key=lambda each: each.why is RefusalReason.OUTSIDE)
                kind, why = _DENIAL_KINDS.get(meant.why, "path"), _reason_text(meant)
                yield _denial(kind, _shown(meant.target), meant.access.value, why, widen_path(meant))
                break
            if names.certain and paths:
                break  # the error is about this path, which is not refused: no other word of the line is meant


_NOT_UP_TO_DATE: Final = regex(r"^(?:error: Entry '([^'\n]{1,1024})' not uptodate\.|\t([^\n]{1,1024}))", re.MULTILINE)
_OVERWRITTEN: Final = "would be overwritten by "


def _tracked_secrets(plan: WallPlan, text: str) -> Iterator[dict[str, Any]]:
    """Git does not replace a tracked file that it cannot read, and says so in its own words."""
    text = text[-WINDOW:]
    for found in islice(_NOT_UP_TO_DATE.finditer(text), MOST_DENIALS):
        path = _absolute(found[1] or found[2], plan.cwd) if found[1] or _OVERWRITTEN in text else None
        refusal = plan.refusal(path, Verb.READ) if path else None
        if refusal is not None and refusal.why is not RefusalReason.OUTSIDE:
            kind, why = _DENIAL_KINDS.get(refusal.why, "path"), f"{_reason_text(refusal)}; git cannot replace it"
            yield _denial(kind, _shown(refusal.target), Verb.WRITE.value, why, widen_path(refusal))


def _refusal(plan: WallPlan, path: str, line: ErrorLine, *, certain: bool) -> Refusal | None:
    """Returns what the walls refuse at this path that fits the error. An access is named on evidence only: the words of
    the line, an error that refuses changes only, or the plan, where it refuses nothing else.
    """
    reading = plan.refusal(path, Verb.READ)
    if line.error is ErrorKind.CHANGES:
        found = plan.refusal(path, line.access or Verb.WRITE)
    elif plan.mounted and reading is None:
        return None  # a read-only mount answers otherwise: here the file's own mode refused
    elif line.access is not None:
        found = plan.refusal(path, line.access)
    elif reading is not None:
        found = reading
    else:
        # What lies outside and can be read, such as a program, is refused to who writes; nothing says that this did.
        found = plan.refusal(path, Verb.WRITE)
        found = None if found is not None and found.why is RefusalReason.OUTSIDE else found
    # In a read-only zone every word is the name of a path that is refused, so that there only a sure one counts.
    return None if found is not None and found.why is RefusalReason.ZONE and not certain else found


def _absolute(name: str, cwd: str) -> str | None:
    name = name.strip().rstrip(",;:")
    if not name or name.startswith(("~", "-")) or "\0" in name or "://" in name or len(name) > 4096:
        return None
    if link := process_link(name):
        name = f"/{link.rest}" if link.name == "root" else link.rest or "."
    path = posixpath.normpath(posixpath.join(cwd or "/", name))
    return path[1:] if path.startswith("//") else path


def _shown(target: str) -> str:
    return clip(one_line(target), _LONGEST_SHOWN)


WINDOW: Final = 256 * 1024
"""Characters of the beginning and of the end of an output that are searched."""
_LINE: Final = 1024
"""Characters on either side of an error text that are searched."""
_LINES_ABOVE: Final = 600
_MOST_LINES: Final = 1000
_MOST_WORDS: Final = 60
_MOST_WORDS_OF_A_NAME: Final = 4


class ErrorKind(Enum):
    """The kind of a refused operation's error."""

    CHANGES = "changes"
    """A read-only file system, or a mount point that can be neither moved nor removed: refuses no reading."""
    ACCESS = "access"
    """A missing right to this file, for whatever was tried."""
    OPERATION = "operation"
    """A missing right to do such a thing at all. Walls answer so to who changes attributes, never to a reader."""


class NameGroup(NamedTuple):
    words: tuple[str, ...]
    certain: bool
    """One of them is what the error is about; otherwise they are only other words of the line that look like paths."""


class ErrorLine(NamedTuple):
    error: ErrorKind
    access: Verb | None
    """None if the line does not say what was tried."""
    names: tuple[NameGroup, ...]
    """Names in the line, the most certain first."""


_ERROR: Final = regex(
    r"(?P<busy>read-only file system|device or resource busy|\bEROFS\b(?:: read-only file system)?"
    r"|\bEBUSY\b(?:: resource busy or locked)?)"
    r"|(?P<access>permission denied|\bEACCES\b(?:: permission denied)?|\bAccessDeniedException\b)"
    r"|(?P<operation>operation not permitted|\bEPERM\b(?:: operation not permitted)?)",
    re.IGNORECASE,
)
_ERROR_KINDS: Final = {"busy": ErrorKind.CHANGES, "access": ErrorKind.ACCESS, "operation": ErrorKind.OPERATION}
_COLOUR: Final = regex(r"\x1b\[[0-9;]{0,16}[mK]")
_QUOTED: Final = regex(r"'([^'\n]{1,1024})'|\"([^\"\n]{1,1024})\"|`([^`'\n]{1,1024})[`']|[‘“]([^‘’“”\n]{1,1024})[’”]")
_BETWEEN_WORDS: Final = regex(r"[\s()\[\]{}<>=,;:'\"`‘’“”|]+")
_NUMBERED: Final = regex(r"[\[(](?:Errno|os error|error|code)?[: ]{0,2}-?\d{1,3}[\])]\s*$", re.IGNORECASE)
"""`[Errno 13]`, `(os error 13)`: another form of the error itself."""
_BEFORE_AFTER: Final = regex(r"\)?\s*(?:failed|for (?:reading|writing|output|input))?[:,(]?\s*$")
"""Text that may stand between a quoted name and the error after it."""
_AFTER_BEFORE: Final = regex(r"\s*(?:\([^()]{0,40}\))?[:,]\s*(?:[\w/]{1,24} )?$")
"""Text that may stand between an error and a quoted name after it: `, open '…'`, `: '…'`."""
_RUBY: Final = regex(r" @ (\w{1,40}) - (.{1,1024}?)(?: \(Errno::\w{1,20}\))?$")
_REDIRECTED: Final = regex(r"redirecting file '([^'\n]{1,1024})'\s*$")
_CAUSE: Final = regex(r"\s*(?:\d{1,3}: )?$")

_DELETES: Final = regex(r"\b(?:remov\w{1,5}|unlink\w{0,4}|rmdir|delet\w{1,4}|rm)\b", re.IGNORECASE)
_FOR_READING: Final = regex(r"\bfor (?:reading|read|input)\b", re.IGNORECASE)
_WRITES: Final = regex(
    r"\b(?:creat\w{1,4}|(?:over|re)?writ\w{1,5}|\w{0,12}put_contents|touch\w{0,3}|tee|for output|output file|temporary"
    r"|mk(?:dir|fifo|nod|temp|stemp|dtemp)\w{0,3}|lock\w{0,3}|renam\w{1,4}|mov(?:e|ing)|mv|append\w{0,3}|f?truncat\w{1,3}"
    r"|ch(?:mod|own|grp)\w{0,3}|chang(?:e|ing) (?:permissions|owner\w{0,4}|mode|group)|utim\w{1,6}|[lf]?setxattr"
    r"|(?:set|setting|preserving) (?:times?|permissions|mode|owner\w{0,4}|timestamps?)|apply2files"
    r"|sym\w{0,3}link\w{0,3}|symbolic link|hard link|link(?:at|ing)?|ln|listen|bind|sav(?:e|ing)|updat(?:e|ing)"
    r"|(?:un)?pack(?:ing)?|extract\w{0,3}|install\w{0,3})\b",
    re.IGNORECASE,
)
_NOT_ABLE: Final = r"(?:can ?not|can't|could ?n[o']t|failed to|unable to)"
_READS: Final = regex(
    rf"\b(?:{_NOT_ABLE} (?:access|stat|open directory|read\w{{0,3}}|load|run|import)|can't open file|error reading"
    r"|read(?:ing|dir|link|File|FileSync)?|(?:open|scan)dir|l?stat|execut\w{1,3}|exec\w{0,3}|spawn\w{0,4}|interpreter"
    r"|chdir|cd|connect|dial|perl script|script file)\b",
    re.IGNORECASE,
)
_READERS: Final = regex(
    r"(?:/[\w/.-]{0,200}/)?(?:cat|head|tail|tac|less|more|grep|egrep|fgrep|rg|ag|ls|find|fd|tree|wc|diff|cmp|comm|uniq"
    r"|stat|file|od|xxd|hexdump|strings|awk|gawk|mawk|nl|cut|base64|base32|cksum|md5sum|sha\d{1,3}sum|b2sum|du|jq|env"
    r"|nice|nohup|timeout|setsid|stdbuf|xargs|time|make|gmake|cc1|cc1plus|python[\d.]{0,5}|node|ruby|perl): "
)
"""Programs that only read or run: for them a missing right to change the same path is no evidence of walls."""
_EXCEPTION: Final = regex(r"[\w.]{1,100}(?:Error|Exception): ")
_STARTS: Final = regex(r"_execute_child|posix_spawn|execv")
"""Text in the lines above an exception that shows that a program was to be started."""
_SHELL: Final = regex(r"(?:\S{0,200}: (?:line )?\d{1,6}|(?:\S{0,200}/)?\w{0,4}sh): [^:]{1,1024}: ?$")
_COULD_NOT_EXECUTE: Final = 126
"""Exit code of a shell that found a program and was not allowed to run it."""

_ONLY_SAYS_SO: Final = regex(
    rf"(?:{_NOT_ABLE}|failed) ?(?:open|mkdir|stat|read|write|create|execute|exec|unlink|remove|rename|utime|close|run"
    r"|access|open stream|change mode|change ownership)?(?: for (?:reading|writing|output|input))?",
    re.IGNORECASE,
)
"""A part of a line without a name: `tar: x: Cannot open: …`."""
_NAMES_ONE: Final = regex(
    rf"(?:(?:{_NOT_ABLE}|error|while) )?"
    r"(?:open\w{0,3}|creat\w{1,4}|read\w{0,3}|writ\w{1,4}|touch|mkdir|make|remov\w{1,4}|unlink(?:at)?|delete|rename|move"
    r"|copy|l?stat|access|execute|(?:fork/)?exec|run|load|lock|truncate|save|append|chmod|chown|chdir|readlink"
    r"|(?:sym)?link)\b"
    r"(?: (?:config|output|input|regular|temporary|lock|log|file|directory|dir|at|to|the|perl|script|symbolic|hard"
    r"|link)\b)* ",
    re.IGNORECASE,
)
"""Words after which a bare word is a name: `cannot create notes`, `open notes`."""
_NO_NAME: Final = regex(
    r"(?i:errno|fatal|error|warning|warn|info|note|notice|debug|trace|fail(?:ed|ure)?|denied|exception|code|status|open"
    r"|read(?:ing)?|writ(?:e|ing)|exec|mkdir|rename|unlink|stat|syscall|kind|message|line|file|directory|path|process"
    r"|ID|null|none|nil|true|false)"
    r"|\w{0,60}(?:Error|Exception)|[\d.:+,-]{1,60}"
)
_PARAMETER: Final = regex(r"(?<=/)\[{1,2}\.{0,3}[\w-]{1,60}\]{1,2}")
"""A directory name in brackets: `app/[id]/x`."""
_NOT_IN_A_WORD: Final = regex(r"[\[\]{}()<>=,;|\"'`*$?!\\]|::")


def error_lines(text: str, exit_code: int | None = None) -> Iterator[ErrorLine]:
    """Yields the lines with an error text and a name, in order. `exit_code`: of the whole command; it tells how a shell
    ended.
    """
    pieces = (text,) if len(text) <= 2 * WINDOW else (text[:WINDOW], text[-WINDOW:])
    found = islice((line for piece in pieces for line in _raw_lines(piece)), _MOST_LINES)
    return (read for line in found if (read := _parse_line(line, exit_code)) is not None)


class _RawLine(NamedTuple):
    kind: ErrorKind
    before: str
    after: str
    above: str
    """The lines above."""


def _raw_lines(piece: str) -> Iterator[_RawLine]:
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
        yield _RawLine(
            _ERROR_KINDS[match.lastgroup or ""],
            before,
            after.rstrip(),
            _COLOUR.sub("", piece[max(0, begin - _LINES_ABOVE) : begin]),
        )


def _parse_line(line: _RawLine, exit_code: int | None) -> ErrorLine | None:
    before, after = _NUMBERED.sub("", line.before), line.after
    if (told := _context_above(before, line.above)) is not None:
        before, after = told, ""
    access = _access(before, after)
    if line.kind is ErrorKind.CHANGES and access is not Verb.DELETE:
        access = Verb.WRITE
    if line.kind is ErrorKind.OPERATION and access not in (Verb.WRITE, Verb.DELETE):
        return None
    if access is None and (
        (exit_code == _COULD_NOT_EXECUTE and _SHELL.match(before))
        or (_EXCEPTION.match(before) and _STARTS.search(line.above))
    ):
        access = Verb.READ
    names = tuple(group for group in _names(before, after, bare=line.kind is not ErrorKind.OPERATION) if group.words)
    return ErrorLine(line.kind, access, names) if names else None


def _context_above(before: str, above: str) -> str | None:
    """Returns what was being done, from the lines above, if the line itself has only the error."""
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
    """Returns what was tried, by the words of the line; names do not count."""
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


def _names(before: str, after: str, *, bare: bool) -> Iterator[NameGroup]:
    """`bare`: a word that is nothing but a word may be a name too, where the form of the line says so."""
    if ruby := _RUBY.match(after):
        pair = ruby[2].strip("()").split(", ") if ruby[2].startswith("(") else [ruby[2]]
        yield NameGroup(tuple(pair), True)
        return
    quoted = [*_quoted(before, behind=False), *_quoted(after, behind=True)]
    if quoted:
        yield NameGroup(tuple(name for name, _ in quoted[:_MOST_WORDS]), any(certain for _, certain in quoted))
    spoken = tuple(_just_before(before, bare))
    yield NameGroup(spoken, bool(spoken))
    if after.startswith((": ", ", ")) and not _QUOTED.search(after):  # `zsh:1: permission denied: x`
        name = after[2:].strip()
        if _is_path(name.split(" ")[0]) or (
            bare and re.fullmatch(r"\w{0,4}sh:(?:\d{1,6}:)? ?", before) and _is_name(name)
        ):
            yield NameGroup((name,), True)
    program, _, rest = before.partition(": ")
    if not program.strip() or not rest:  # otherwise it says who speaks, and is no name
        rest = before
    words = _BETWEEN_WORDS.split(f"{rest} {after}")[:_MOST_WORDS]
    yield NameGroup(tuple(word for word in words if _is_path(word)), False)


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
    """Whether a word has the form of a path: `/x`, `./x`, `a/b`, `.env`; neither `Errno::EACCES`, nor `[x]`, nor `1/2`,
    nor an option.
    """
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


_SYSTEM_STARTS = ("/usr/", "/etc/", "/lib", "/bin/", "/sbin/", "/nix/", "/proc/", "/sys/", "/dev/", "/run/", "/var/")
"""Directories that no advice offers to open."""
_GLOB = regex(r"[*?\[]")
_OTHERWISE = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_RULES_FILE = "rules.yaml in FORGE_HOME, under `rules:`"


def widen_host(host: str, port: int, *, private: bool) -> str:
    """`private`: the name leads to an address in a private range, so the call had named it already."""
    group = None if private else group_of_place((host, port), person_environ())
    if group is not None:
        rule = f"{_RULES_FILE}: - {{group: {group.value}, verdict: preApproved}}"
        return f"{rule} (and the call names {GROUP_PREFIX}{group.value} in `network`)"
    extra = ", private: true" if private else ""
    rule = f"{_RULES_FILE}: - {{host: {_yaml(host)}, ports: [{port}]{extra}, verdict: preApproved}}"
    return rule if private else f"{rule} (and the call names it in `network`)"


def widen_path(refusal: Refusal) -> str:
    if refusal.why is RefusalReason.PROTECTED:
        return _unprotect(refusal)
    if refusal.why is RefusalReason.OWN_CODE:
        return INSTALL_OUTSIDE
    if refusal.why is RefusalReason.SECRET:
        path = _yaml(_GLOB.sub(r"[\g<0>]", refusal.ruled or refusal.target))
        rule = f"{_RULES_FILE}: - {{path: {path}, access: [read], verdict: preApproved, accept: [secret_path]}}"
        # What is protected too stays read-only when it can be read.
        return f"{rule}; {_unprotect(refusal)}" if refusal.access is not Verb.READ and _protecting(refusal) else rule
    if refusal.why is RefusalReason.SEALED:
        return f"{_NOBODY} lifts this one; move it out of the zone, or make a directory readable for its owner."
    if refusal.why is RefusalReason.RULE:
        path = escape_control_chars(refusal.ruled or refusal.target)
        return f"rules.yaml: change or remove the path rule on {path} (`forge rules list` shows where it is written)"
    if refusal.why is RefusalReason.NOT_KEPT:
        return (
            "This command ran without a question, so what could not be undone was read-only. Change it with a file "
            "tool, which asks, or switch to the approval mode interactive and run it again."
        )
    if refusal.why is RefusalReason.ZONE and refusal.meant_writable:
        return (
            f"/{refusal.zone} is rw and closed to this call: the call may only read, its `approval` or a rule says "
            "blocked, or the walls are read-only (`forge doctor` says how to get full ones)"
        )
    if refusal.why is RefusalReason.ZONE:
        zone = f"forge.yaml: sandbox: {{zones: {{{refusal.zone}: {{mode: rw}}}}}}"
        return f"{zone} (also where a worker's file names it; unless its `approval` blocks)"
    directory = posixpath.dirname(refusal.target) or "/"
    if f"{directory}/".startswith(_SYSTEM_STARTS):
        return f"{_NOBODY} opens this directory of the system; name a directory of your own as a zone (sandbox.zones)."
    if directory.count("/") < 2:
        return "forge.yaml: name a directory of your own as a zone (sandbox.zones)"
    if refusal.zone:
        return f"forge.yaml: name another directory as a zone (sandbox.zones): this one holds the zone /{refusal.zone}"
    if refusal.access is Verb.READ:
        return f"config.yaml in FORGE_HOME: sandbox: {{read: [{_yaml(directory)}]}}"
    zone = f"{_yaml(_zone_name(directory))}: {{path: {_yaml(directory)}, mode: rw}}"
    return f"forge.yaml: sandbox: {{zones: {{{zone}}}}} (beside the others; without any: workspace: {{path: .}})"


def _unprotect(refusal: Refusal) -> str:
    names = _protecting(refusal)
    if not names:
        shown = escape_control_chars(refusal.restricted or refusal.target)
        return f"forge.yaml: sandbox.unprotect frees a protected name; {shown} is closed: one is there or links there"
    return f"forge.yaml: sandbox: {{unprotect: [{', '.join(map(_yaml, names))}]}}"


def _protecting(refusal: Refusal) -> list[str]:
    """The names of the list in sandbox.md §5 that hold this path, the narrowest ones: all of them must go before it is
    writable. What else of a `.git` is closed goes with the whole of it."""
    parts = [part for part in refusal.target.split("/") if part][1:]
    is_git = bool(parts) and parts[-1].casefold() == GIT_FILE

    def holds(name: str) -> bool:
        others = [other for other in PROTECTED_NAMES if other not in (name, GIT_FILE)]
        return Mark.PROTECTED_PATH in marks(parts, git_is_file=is_git, unprotect=others)

    found = [name for name in PROTECTED_NAMES if name != GIT_FILE and holds(name)]
    in_git = GIT_FILE in (part.casefold() for part in parts)
    return found or ([GIT_FILE] if in_git and refusal.why is RefusalReason.PROTECTED else [])


def _zone_name(directory: str) -> str:
    """Returns a valid zone name for a directory."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", posixpath.basename(directory).casefold()).strip("-_")[:32]
    return plain if is_zone_name(plain) else f"zone-{plain}"[:32].rstrip("-_")


def _yaml(text: str) -> str:
    """Quotes a text if YAML would read it as something else."""
    plain = text.replace("/", "").replace(".", "").replace("-", "").replace("_", "")
    word = plain.isascii() and plain.isalnum() and not plain.isdigit() and text.casefold() not in _OTHERWISE
    if word and not text.startswith("-"):
        return text
    escaped = escape_control_chars(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
