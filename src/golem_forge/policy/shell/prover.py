"""The prover: takes parsed segments and a `CommandWorld`, tells whether they only read in zones.

It never says more than it checked: one segment it cannot prove leaves the command unproven, with the reason.
Path operands are reported either way, so that policy can judge the ones outside every zone.

Only the operands themselves are judged. What a recursive read (`grep -R`, `rg`, `diff`) meets below a directory, links
out of the zone and secret files included, is held back by the walls, not by this proof; so it is proven only where the
walls know all that lies below. Programs that show no more than names (`ls -R`, `find`, `du`) need not wait for that.

Git (`git_prover`) is proven for walls whose zones are all read-only: what settings of a repository make it start finds
nothing to change there. So it counts only where the whole command is proven, for then the walls are built like that.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.policy.shell import outside_paths
from golem_forge.policy.shell import readonly_table as table
from golem_forge.policy.shell.arguments import file_words, names, secret_by_shape, spellings
from golem_forge.policy.shell.git_prover import GitReading, read_git, secret_leak_reason, started_git
from golem_forge.policy.shell.outside_paths import resolve_operand as _resolve
from golem_forge.policy.shell.readonly_table import ReadOnlyRow
from golem_forge.policy.shell.strict import CommandWorld, Operand, OperandKind, Parsed, Segment

_PLACE_CHANGERS = names("cd chdir pushd popd builtin command eval exec source . trap alias")
_HOME = "/home/forge"
_MAX_PLACES = 32

_DEEP = names("rg diff")  # given a directory, they show the content of files in it

_MAX_SPELLINGS = 64

_COUNT = regex(r"-[0-9]+")
_FIND_EXPRESSION = regex(r"-|[()!,]$")
_SED_PRINT = regex(r"[0-9]+(,[0-9]+)?p")
_AWK_PRINT = regex(r"(NR ?(==|<=|>=|<|>) ?[0-9]+ ?)?\{ ?print( \$(NF|[0-9]+)(, ?\$(NF|[0-9]+))*)? ?;? ?\}")
_FILE_TEST = regex(r"-[edfrswxLh]")

# bash's `%n` assigns a variable (PATH among them) and zsh evaluates numeric arguments as arithmetic,
# so a format is proven only if every conversion is known and numeric ones get plain arguments.
_CONVERSION = regex(r"%[-+ #0]*[0-9]*(?:\.[0-9]+)?([sbcq%diouxXeEfgG])")
_PLAIN_NUMBER_TEXT = regex(r"(?!.*(--|\+\+))[\w ./:,+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class SegmentProof:
    """The proof of one segment: proven if `why` is empty; with its path operands, as far as they are known."""

    why: str
    operands: tuple[Operand, ...] = ()
    needs_closed_zones: bool = False
    """Proven only inside full walls with every zone read-only, and beside nothing that is not proven."""
    started: tuple[str, ...] = ()
    """The words in which it is started, for the proof is of them; none: those that were given."""

    @property
    def proven(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Proof:
    """The whole command: `why` is the first segment's reason not to be proven, empty if proven."""

    why: str
    segments: tuple[SegmentProof, ...]

    @property
    def proven(self) -> bool:
        return not self.why

    @property
    def reads(self) -> tuple[Operand, ...]:
        """The operands that lie inside a zone, each once."""
        return self._operands("inside")

    @property
    def outside(self) -> tuple[Operand, ...]:
        """The operands that lie outside every zone: policy raises the floor `outside_zone` for them."""
        return self._operands("outside")

    def _operands(self, kind: OperandKind) -> tuple[Operand, ...]:
        return tuple(dict.fromkeys(op for part in self.segments for op in part.operands if op.kind == kind))


def prove(parsed: Parsed, world: CommandWorld, cwd: str) -> Proof:
    places = segment_places(parsed, world, cwd)
    possible = _possible_places(parsed, world, cwd)
    proofs: list[SegmentProof] = []
    for index, segment in enumerate(parsed.segments):
        moves = outside_paths.moves_of(segment.words)
        if moves:
            steered = _is_steered(moves) and any(map(outside_paths.steers_cd, parsed.segments[:index]))
            may_be = (outside_paths.ANYWHERE, *possible[index]) if steered else possible[index]
            proofs.append(_prove_move(parsed, index, moves, world, cwd, may_be))
        else:
            here = places[index] or possible[index]
            proof = _prove_segment(segment, world, here)
            why = proof.why if places[index] else (proof.why or "the working directory is not known here")
            strays = outside_paths.operands_outside(parsed, index, world, here) if why else ()
            proofs.append(replace(proof, why=why, operands=tuple(dict.fromkeys((*proof.operands, *strays)))))
    why = next((proof.why for proof in proofs if proof.why), "")
    return Proof(why, tuple(proofs))


def segment_places(parsed: Parsed, world: CommandWorld, cwd: str) -> tuple[tuple[str, ...], ...]:
    """Returns for each segment the directories in which it may run; empty if they cannot be known."""
    places: list[tuple[str, ...]] = []
    now: tuple[str, ...] = (cwd,)
    for index, segment in enumerate(parsed.segments):
        # `cd x && a; b` runs b in the old directory if x cannot be entered.
        if now and cwd not in now and segment.joined_by in (";", "||"):
            now = (*now, cwd)
        places.append(now)
        if segment.words[0] in _PLACE_CHANGERS:
            target = _cd_target(parsed, world, cwd) if index == 0 else None
            now = (target.virtual,) if target is not None and target.kind == "inside" else ()
    return tuple(places)


def _cd_target(parsed: Parsed, world: CommandWorld, cwd: str) -> Operand | None:
    words = parsed.segments[0].words
    if words[0] != "cd" or len(words) != 2 or words[1][:1] in ("", "-", "+"):
        return None
    if len(parsed.segments) < 2 or parsed.segments[1].joined_by != "&&":
        return None
    return _resolve(words[1], world, cwd)


def _possible_places(parsed: Parsed, world: CommandWorld, cwd: str) -> tuple[tuple[str, ...], ...]:
    """Returns for each segment every directory in which it may run, also outside zones: where a `cd` or `pushd` before
    it led, and where it was if that failed or was skipped. Wide on purpose, since it is used only to find what leaves
    the zones.
    """
    places: list[tuple[str, ...]] = []
    done: tuple[str, ...] = (cwd,)  # after what came before, if that ended well
    failed: tuple[str, ...] = ()
    steered = False
    for segment in parsed.segments:
        match segment.joined_by:
            case "&&":
                here = done
            case "||":
                here = failed
            case "|":
                here = places[-1]
            case _:
                here = _together(done, failed)
        places.append(here)
        left = here
        own = outside_paths.moves_of(segment.words)
        for moves in (own,) if own else outside_paths.evaluated_moves(segment):
            if moves:
                before = places if moves[1:] == ("-",) or moves[0] == "popd" else ()
                led = (outside_paths.place_of(to, world, place) for to in moves[1:] if to != "-" for place in left)
                home = (_HOME,) if moves == ("cd",) else ()
                anywhere = (outside_paths.ANYWHERE,) if steered and _is_steered(moves) else ()
                left = _together(anywhere, tuple(led), home, () if own else left, *before)
        steered = steered or outside_paths.steers_cd(segment)
        if segment.joined_by == "&&":
            done, failed = left, _together(failed, here)
        elif segment.joined_by == "||":
            done, failed = _together(done, left), here
        elif segment.joined_by == "|":
            done = failed = _together(done, failed, here, left)
        else:
            done, failed = left, here
    return tuple(places)


def _together(*places: tuple[str, ...]) -> tuple[str, ...]:
    """Too many to look at: the root stands for those that are left out."""
    every = tuple(dict.fromkeys(place for each in places for place in each))
    return every if len(every) <= _MAX_PLACES else (*every[:_MAX_PLACES], "/")


def _is_steered(moves: tuple[str, ...]) -> bool:
    """Does a variable decide where this leads to: CDPATH for what is relative, HOME or OLDPWD without a name?"""
    return not all(to.startswith("/") for to in moves[1:] or ("",))


def _prove_move(
    parsed: Parsed, index: int, moves: tuple[str, ...], world: CommandWorld, cwd: str, possible: tuple[str, ...]
) -> SegmentProof:
    target = _cd_target(parsed, world, cwd) if index == 0 else None
    if target is None:
        led = (_resolve(to, world, place) for to in moves[1:] if to != "-" for place in possible)
        why = "cd is only proven with one path, as the first segment, joined by &&"
        return SegmentProof(why, tuple(dict.fromkeys(led)))
    why = (
        _shell_reason(parsed.segments[index], world)
        or _operand_reason(target)
        or _secret_reason(parsed.segments[index].words[1:], world, (cwd,))
    )
    return SegmentProof(why, (target,))


def _prove_segment(segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> SegmentProof:
    """`places`: the directories that it may run in."""
    name = posixpath.basename(segment.words[0])
    arguments = segment.words[1:]
    if name == "git":
        return _prove_git(segment, read_git(arguments), world, places)
    row = table.READ_ONLY_TABLE.get(name)
    if row is None:
        return SegmentProof(f"'{segment.words[0]}' is not known to only read")
    why, paths = _read_arguments(name, row, arguments)
    if why and name in table.ONE_FORM:
        return SegmentProof(why)
    operands: list[Operand] = []
    for place in places:
        operands.extend(_resolve(path, world, place) for path in paths if path != "-")
    if why:  # what else the words name may be files as well: `sort --files0-from=x`
        operands.extend(outside_paths.stray_operands(segment.words, world, places))
    why = (
        _shell_reason(segment, world)
        or _program_reason(segment.words[0], name, world)
        or why
        or _first(map(_operand_reason, operands))
        or _secret_reason(file_words(name, arguments), world, places)
    )
    recursive = row.operands == "pattern" and any(
        word[:1] == "-" and word[:2] != "--" and set(word) & {"r", "R"} for word in arguments
    )
    if not paths and (row.lists_cwd or recursive):
        operands.extend(here for place in places if (here := world.operand(".", place)).kind != "bad")
    if not why and (name in _DEEP or recursive):
        # `rg` looks at hidden files with `--hidden` and with `-uu`; any word that could be one of them counts
        hidden = name != "rg" or any(
            word.startswith("--h") or (word[:1] == "-" and word[1:2] != "-" and "u" in word) for word in arguments
        )
        why = _first(_depth_reason(operand, world, hidden=hidden) for operand in operands)
    return SegmentProof(why, tuple(operands))


def _prove_git(segment: Segment, reading: GitReading, world: CommandWorld, places: tuple[str, ...]) -> SegmentProof:
    entered: list[Operand] = []
    for directory in reading.directories:
        entered = [_resolve(directory, world, place) for place in places]
        if any(operand.kind != "inside" for operand in entered):
            return SegmentProof("'git -C' leads out of the zones", tuple(entered))
        places = tuple(operand.virtual for operand in entered)
    if reading.row is None:
        return SegmentProof(reading.why, tuple(entered))
    named = [_resolve(name, world, place) for name in reading.names for place in places]
    paths = [_resolve(path, world, place) for path in reading.paths for place in places]
    inner = [_in_commit(path, world, place) for path in reading.inner_paths for place in places]
    # A revision is judged as the path that it could be, but it is no file that is read.
    operands = [*entered, *(op for op in named if op.kind != "inside" or op.exists), *paths, *inner]

    def is_path(word: str) -> bool:
        return any(op.exists for place in places if (op := world.operand(word, place)).kind == "inside")

    why = (
        _shell_reason(segment, world)
        or _program_reason(segment.words[0], "git", world)
        or reading.why
        or _first(map(_operand_reason, operands))
        or _secret_reason(segment.words[1:], world, places)
        or secret_leak_reason(reading, is_path)
    )
    if not why and len(places) > 1 and reading.leaves_out and reading.names:
        why = "the working directory is not known here"
    if not why and any(world.work_tree(place) is None for place in places):
        why = "the repository's settings name another work tree"
    if not why and reading.shows_content and world.has_read_rules():
        why = "a rule hides files, and git may show what is in them"
    if not why and reading.row.content:
        roots = {f"/{place.split('/')[1]}" for place in places}
        zones = (world.operand(root, "/") for root in sorted(roots))
        why = _first(_depth_reason(zone, world, hidden=True) for zone in zones)
    started = started_git(segment.words, reading, is_path)
    return SegmentProof(why, tuple(dict.fromkeys(operands)), needs_closed_zones=True, started=started)


def _in_commit(path: str, world: CommandWorld, place: str) -> Operand:
    """A path of a commit as the file that it is in the work tree, whether or not it is there."""
    if path.startswith(("./", "../")):
        return _resolve(path, world, place)
    return _resolve(path or ".", world, world.work_tree(place) or place)


def is_system_shell(shell: str, world: CommandWorld) -> bool:
    program = world.program(shell)
    return program is not None and program.system and not program.zone


def _shell_reason(segment: Segment, world: CommandWorld) -> str:
    strange = (shell for shell in segment.shells if not is_system_shell(shell, world))
    return next((f"the shell '{shell}' is not the system's" for shell in strange), "")


def _program_reason(word: str, name: str, world: CommandWorld) -> str:
    program = world.program(name)
    if program is None:
        return f"'{name}' was not found"
    if program.zone or not (program.system or (name == "rg" and program.shipped)):
        return f"'{name}' is not the system's"
    if word != name and not same_program(word, name, world):
        return f"'{word}' is not the system's '{name}'"
    if program.script and name not in table.HARMLESS_SCRIPTS:
        return f"'{name}' is a script here"
    return ""


def same_program(word: str, name: str, world: CommandWorld) -> bool:
    """Is the absolute path `word`, outside every zone, the program `name` (a path, or what the walls' PATH gives)?"""
    if not word.startswith("/") or posixpath.basename(word) != posixpath.basename(name):
        return False  # one file may be many programs, told apart by name
    given, found = world.program(word), world.program(name)
    return given is not None and found is not None and not given.zone and given.path == found.path


def _read_arguments(name: str, row: ReadOnlyRow, arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The reason not to be proven (or none) and the words that are path operands."""
    if row.operands == "find":
        return _read_find(arguments)
    if row.operands == "sed":
        return _read_sed(arguments)
    if row.operands == "awk":
        return _read_awk(arguments)
    if row.operands == "test":
        return _read_test(arguments)
    if row.operands == "version":
        return "" if arguments == ("--version",) else f"'{name}' is only proven with --version alone", ()
    if row.operands == "printf":
        return _printf_reason(arguments), ()
    why, flags, operands = _split_flags(name, row, arguments)
    if row.operands == "pattern" and not flags & row.pattern_flags:
        if not operands:
            why = why or f"'{name}' has no pattern"
        operands = operands[1:]
    if row.at_most is not None and len(operands) > row.at_most:
        why = why or f"'{name}' has more than {row.at_most} operand"
    if row.operands == "date":
        if not all(operand.startswith("+") for operand in operands):
            why = why or "date is only proven with a +FORMAT"
        return why, ()
    return why, () if row.operands == "text" else tuple(operands)


def _split_flags(name: str, row: ReadOnlyRow, arguments: tuple[str, ...]) -> tuple[str, set[str], list[str]]:
    why = ""
    flags: set[str] = set()
    operands: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            operands.extend(words)
        elif word == "-" or not word.startswith("-"):
            operands.append(word)
        elif row.counted and _COUNT.fullmatch(word):
            continue
        elif word.startswith("--"):
            flag, equals, value = word.partition("=")
            flags.add(flag)
            if flag in row.valued:
                if not equals and next(words, None) is None:
                    why = why or f"'{name} {flag}' lacks its value"
            elif flag not in row.switches or (equals and not (flag == "--color" and value in table.COLOR_VALUES)):
                why = why or f"'{name} {word}' is not known to only read"
        else:
            for place, letter in enumerate(word[1:], 1):
                flag = "-" + letter
                flags.add(flag)
                if flag in row.valued:
                    if row.apart and place < len(word) - 1:
                        why = why or f"'{name} {word}' is not known to only read"
                    elif place == len(word) - 1 and next(words, None) is None:
                        why = why or f"'{name} {flag}' lacks its value"
                    break
                if flag in row.optional:
                    break
                if flag not in row.switches:
                    why = why or f"'{name} {flag}' is not known to only read"
    if row.old_operands and any(operand.startswith("+") for operand in operands):
        why = why or f"'{name} +…' is an option of old, which is not known to only read"
    return why, flags, operands


def _read_find(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    start = next((i for i, word in enumerate(arguments) if _FIND_EXPRESSION.match(word)), len(arguments))
    paths = list(arguments[:start])
    words = iter(arguments[start:])
    for word in words:
        if word in table.FIND_VALUED:
            value = next(words, None)
            if value is None:
                return f"'find {word}' lacks its value", tuple(paths)
            if word == "-newer":
                paths.append(value)
        elif word not in table.FIND_TESTS:
            return f"'find {word}' is not known to only read", tuple(paths)
    return "", tuple(paths)


def _read_sed(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    paths = tuple(word for word in arguments[2:] if not word.startswith("-"))
    if len(arguments) < 2 or arguments[0] != "-n" or not _SED_PRINT.fullmatch(arguments[1]):
        return "sed is only proven as sed -n N[,M]p", paths
    if len(arguments) > 3 or len(paths) != len(arguments) - 2:
        return "sed is only proven with at most one path", paths
    return "", paths


def _read_awk(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Proves only awk programs that print fields: others may start programs, write files and read any file."""
    words = list(arguments)
    if words[:1] == ["-F"] and len(words) > 1:
        del words[:2]
    elif words and words[0].startswith("-F") and len(words[0]) > 2:
        del words[0]
    paths = tuple(words[1:])
    if not words or not _AWK_PRINT.fullmatch(words[0]):
        return "awk is only proven where it prints fields", paths
    if any(path.startswith("-") or "=" in path for path in paths):
        return "awk is only proven with paths as operands", paths
    return "", paths


def _read_test(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Proves only a single test of one path. The shell's own `test` evaluates words in other forms (`-v 'a[$(…)]'`,
    `-eq`).
    """
    paths = tuple(word for word in arguments if not word.startswith("-"))
    if len(arguments) != 2 or not _FILE_TEST.fullmatch(arguments[0]) or len(paths) != 1:
        return "test is only proven with one check of one path", paths
    return "", paths


def _printf_reason(arguments: tuple[str, ...]) -> str:
    if not arguments or arguments[0].startswith("-"):
        return "printf is only proven with a format first"
    rest = _CONVERSION.sub("", arguments[0])
    if "%" in rest:
        return "printf is only proven with plain conversions"
    numeric = any(found not in "sbcq%" for found in _CONVERSION.findall(arguments[0]))
    if numeric and not all(_PLAIN_NUMBER_TEXT.fullmatch(word) for word in arguments[1:]):
        return "printf is only proven with plain numbers"
    return ""


def _first(reasons: Iterable[str]) -> str:
    return next(filter(None, reasons), "")


def _operand_reason(operand: Operand) -> str:
    if operand.kind == "outside":
        return f"'{operand.virtual}' is outside every zone"
    if operand.kind == "bad":
        return f"'{operand.virtual}' is not a usable path"
    if operand.secret:
        return f"'{operand.virtual}' is a secret path"
    return ""


def _depth_reason(operand: Operand, world: CommandWorld, *, hidden: bool) -> str:
    if not operand.directory or world.scan_complete(operand.virtual, hidden=hidden):
        return ""
    return f"Forge did not search everything below '{operand.virtual}' for secrets"


def _secret_reason(words: Iterable[str], world: CommandWorld, places: tuple[str, ...]) -> str:
    for word in words:
        for count, path in enumerate(spellings(word)):
            if count == _MAX_SPELLINGS:
                return f"'{word[:40]}…' may name too many paths"
            if secret_by_shape(path) or any(world.operand(path, place).secret for place in places):
                return f"'{word}' may name a secret path"
    return ""
