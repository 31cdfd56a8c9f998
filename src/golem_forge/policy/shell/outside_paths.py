"""Operands outside every zone: takes the words of a command, gives those that may be paths there, whoever opens them.

The prover knows the operands of the programs in its table. For all others, and for commands that stand in the arguments
of another one (`timeout 5 cat x`, `sh -ec 'cd /; cat x'`, `echo x | xargs cat`), every word counts that may be a path.
Wide, for it only finds what asks; what a program's own code opens (`python3 -c …`) is held back by the walls alone.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from golem_forge.core.regex import regex
from golem_forge.policy.shell.arguments import file_words, names
from golem_forge.policy.shell.lenient import FoundCommand, find_commands
from golem_forge.policy.shell.readonly_table import ONE_FORM, READ_ONLY_TABLE
from golem_forge.policy.shell.strict import CommandWorld, Operand, Parsed, Segment, render
from golem_forge.policy.shell.wrappers import hidden_commands, reads_script_from_input

ANYWHERE = "/…/…"
"""Stands for a directory that nobody knows: whatever is relative to it lies outside every zone."""

# What is the same on every machine, or the walls' own: naming it tells nothing and changes nothing.
_COMMON = names("/usr /bin /sbin /lib /lib32 /lib64 /libx32 /tmp")
_DEVICES = names("/dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/stdin /dev/stdout /dev/stderr /dev/tty")

_READERS = READ_ONLY_TABLE.keys() - ONE_FORM
_SAME_SHELL = names("eval command builtin trap alias")
_MOVERS = names("cd chdir pushd popd")
_SETTERS = names("export declare typeset local readonly read printf mapfile readarray getopts let set")
_STEERS_CD = regex(r"\b(cdpath|oldpwd|pwd|home|dirstack)\b", re.IGNORECASE)

_MAX_CLIMBS = 40  # each `..` after a name costs a look at the disk
_MAX_INNER = 200
_NO_NAME = ("", ".", "..")

_GLUED = regex(r"-[A-Za-z]+[@=]?(?=/|\.\.(?:/|$))")
_ADDRESS = regex(r"file://(?:localhost)?(?=/)|@(?=/|\.)")
_LANGUAGE = regex(r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|julia|Rscript)[0-9.]*")
_CODE_FLAG = regex(r"-[A-Za-z]*[ceEpr]|--(eval|print|expression|execute|code)")
_SCRIPT_FIRST = names("awk gawk mawk nawk original-awk sed gsed jq yq")
_GIT_TEXT = names("-m --message -S -G -e --grep --author --format --pretty")


def resolve_operand(path: str, world: CommandWorld, cwd: str) -> Operand:
    """Resolves as the kernel does: what stands before `..` is followed first, for it may be a link."""
    given = path
    for _ in range(_MAX_CLIMBS):
        parts = path.split("/")
        climb = next((i for i, part in enumerate(parts) if part == ".." and i and parts[i - 1] not in _NO_NAME), None)
        if climb is None:
            return world.operand(path, cwd)
        before = world.operand("/".join(parts[:climb]), cwd)
        if before.kind != "inside":
            return before
        parent = before.virtual.rstrip("/").rpartition("/")[0]
        path = "/".join([parent, *parts[climb + 1 :]]) or "/"
    return Operand("bad", given)


def place_of(path: str, world: CommandWorld, cwd: str) -> str:
    """The virtual directory that `path` leads to, whether or not a zone has it."""
    target = resolve_operand(path, world, cwd)
    if target.kind == "inside":
        return target.virtual
    return posixpath.normpath(posixpath.join(cwd, path))


def moves_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """`cd` or `pushd` and where to, if this is what the words do; options are left out."""
    while words and words[0] in ("command", "builtin"):
        words = tuple(word for word in words[1:] if not word.startswith("-"))
    if not words or words[0] not in _MOVERS:
        return ()
    return (words[0], *(word for word in words[1:] if word == "-" or word[:1] not in ("-", "+")))


def evaluated_moves(segment: Segment) -> list[tuple[str, ...]]:
    """The moves that a segment's own shell makes because of its arguments, in `eval` in `eval` too. Text that is
    expanded first may lead anywhere."""
    if segment.words[0] not in _SAME_SHELL:
        return []
    found = _nested_commands((Segment(segment.words),))
    moves = [moves_of(each.words) for each in found if set(each.via) <= _SAME_SHELL]
    if any("$" in word or "`" in word for word in segment.words):
        moves.append(("cd", ANYWHERE))
    return [each for each in moves if each]


def steers_cd(segment: Segment) -> bool:
    """May it set a variable that decides where a later `cd` leads to: CDPATH, HOME, OLDPWD?"""
    name = posixpath.basename(segment.words[0])
    if name not in _SETTERS and name not in _SAME_SHELL:
        return False
    for each in (FoundCommand(name, segment.words), *_nested_commands((Segment(segment.words),))):
        if each.program in _SETTERS and any(_STEERS_CD.search(word) for word in each.arguments):
            return True
        if any(_STEERS_CD.search(variable) for variable, _ in each.assignments):
            return True
    return False


def operands_outside(parsed: Parsed, index: int, world: CommandWorld, places: tuple[str, ...]) -> tuple[Operand, ...]:
    """Returns the paths outside every zone that a segment names in its words, in commands in its arguments, or in
    commands fed to it.
    """
    words = parsed.segments[index].words
    name = posixpath.basename(words[0])
    found: list[Operand] = []
    if name not in _READERS:
        found.extend(stray_operands(words, world, places))
    here = places
    for each in _inner_of_pipeline(parsed, index):
        moves = moves_of(each.words)
        there = tuple(place_of(each.directory, world, place) for place in here) if each.directory else here
        if moves:
            led = tuple(place_of(to, world, place) for to in moves[1:] if to != "-" for place in there)
            here = tuple(dict.fromkeys((*here, *led)))[:_MAX_CLIMBS]
        found.extend(stray_operands(each.words, world, there))
        spelled = [value for _, value in each.assignments]
        spelled += [redirect.target for redirect in each.redirects if redirect.target]
        found.extend(_outside(spelled, world, there, common=True))
    return tuple(dict.fromkeys(found))


def stray_operands(words: tuple[str, ...], world: CommandWorld, places: tuple[str, ...]) -> Iterator[Operand]:
    """The words of one command that lead outside every zone. The programs of the table have real operands; for all
    others what is common to every machine does not count: `gcc -I/usr/include`, `tar -C /tmp`."""
    name = posixpath.basename(words[0]) if words else ""
    if not words or name in ("eval", "trap", "alias"):
        return
    arguments = file_words(name, words[1:])
    for hidden in hidden_commands(name, words[1:]):  # judged as commands of their own
        arguments = tuple(word for word in arguments if word not in hidden.words and word != hidden.script)
    yield from _outside(_without_text(name, arguments), world, places, common=name not in _READERS)


def _outside(
    words: list[str] | tuple[str, ...], world: CommandWorld, places: tuple[str, ...], *, common: bool
) -> Iterator[Operand]:
    for word in words:
        for path in _paths_in(word):
            for place in places:
                if common and _is_common(posixpath.normpath(posixpath.join(place, path))):
                    continue
                operand = resolve_operand(path, world, place)
                if operand.kind == "outside":
                    yield operand


def _is_common(path: str) -> bool:
    path = "/" + path.lstrip("/")
    return path in _DEVICES or f"/{path.split('/')[1]}" in _COMMON


def _paths_in(word: str) -> Iterator[str]:
    """The paths that one word may name: itself, the value of an option or variable, what is glued to a letter."""
    if glued := _GLUED.match(word):
        yield word[glued.end() :]
    elif not word.startswith("-"):
        yield from _as_path(word)
    if "=" in word and not word.startswith("="):
        yield from _as_path(word.partition("=")[2])


def _as_path(text: str) -> Iterator[str]:
    text = _ADDRESS.sub("", text, count=1) if _ADDRESS.match(text) else text
    if text and "://" not in text and all(len(part) < 256 for part in text.split("/")):
        yield text


def _without_text(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Leaves out what is code, a pattern or a message for this program, and may begin with a slash as well."""
    if name == "git":
        taken = [i for i, word in enumerate(arguments) if i and arguments[i - 1] in _GIT_TEXT]
        taken += [i for i, word in enumerate(arguments) if word.partition("=")[0] in _GIT_TEXT]
    elif name in _SCRIPT_FIRST or _LANGUAGE.fullmatch(name):
        taken = [i for i in range(1, len(arguments)) if _CODE_FLAG.fullmatch(arguments[i - 1])]
        if name.endswith("awk"):
            taken = [i for i in range(1, len(arguments)) if arguments[i - 1] == "-F"]
        if name in _SCRIPT_FIRST and not any(
            word[:2] in ("-e", "-f") or word.startswith(("--e", "--f")) for word in arguments
        ):
            first = (i for i, word in enumerate(arguments) if not word.startswith("-") and i not in taken)
            taken.extend(i for i in (next(first, None),) if i is not None)
    else:
        return arguments
    return tuple(word for i, word in enumerate(arguments) if i not in taken)


def _inner_of_pipeline(parsed: Parsed, index: int) -> list[FoundCommand]:
    """The commands hidden in a segment; what is printed into it by the ones before it is known to the detector."""
    words = parsed.segments[index].words
    name = posixpath.basename(words[0])
    if not any(True for _ in hidden_commands(name, words[1:])) and not reads_script_from_input(name, words[1:]):
        return []
    start = index
    while start and parsed.segments[start].joined_by == "|":
        start -= 1
    return _nested_commands(parsed.segments[start : index + 1], name)


def _nested_commands(segments: tuple[Segment, ...], via: str = "") -> list[FoundCommand]:
    """The commands in the arguments of others, or only of the program `via`."""
    found = find_commands(render(Parsed(segments)))
    inner = [each for each in (*found.commands, *found.lines) if each.via and via in ("", each.via[0])]
    return inner[:_MAX_INNER]
