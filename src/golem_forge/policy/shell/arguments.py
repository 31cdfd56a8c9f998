"""Reading a program's arguments without its manual: options, operands that may name files, and paths that nobody
empties on purpose. Judged from the words alone; shared by prover and detector.

Long flags count in every abbreviation; `--` ends flags. Functions take the words after the program's name. A word
counts as a file name unless its program can only treat it as text. Both sides use the same reading, so what the
detector calls a secret is never proven harmless.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import process_link


@dataclass(frozen=True, slots=True)
class Option:
    flag: str  # `-x` for each letter of a cluster, `--long` as written
    value: str | None


def is_long(word: str, name: str, minimum: int = 1) -> bool:
    """Is `word` the long flag `name`, abbreviated to no less than `minimum` letters, with or without a value?"""
    flag = word.partition("=")[0]
    return flag.startswith("--") and name.startswith(flag) and len(flag) >= 2 + minimum


def has_long(arguments: tuple[str, ...], name: str, minimum: int = 1) -> bool:
    return any(is_long(word, name, minimum) for word in before_double_dash(arguments))


def before_double_dash(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def short_letters(arguments: tuple[str, ...]) -> set[str]:
    """Returns every letter of every cluster of short options (`-xvf`)."""
    return {
        letter
        for word in before_double_dash(arguments)
        if word.startswith("-") and not word.startswith("--")
        for letter in word[1:]
    }


def plain_operands(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Every word that is not a flag; the value of a flag counts too, for it cannot be told apart."""
    ahead = before_double_dash(arguments)
    operands = [word for word in ahead if not word.startswith("-") or word == "-"]
    return (*operands, *arguments[len(ahead) + 1 :])


def leading_options(
    arguments: tuple[str, ...], short_valued: str, long_valued: frozenset[str]
) -> tuple[list[Option], int]:
    """The flags before the first operand, and the index of that operand."""
    options: list[Option] = []
    index = 0
    while index < len(arguments):
        word = arguments[index]
        index += 1
        if word == "--":
            break
        if not word.startswith("-"):
            return options, index - 1
        following = arguments[index] if index < len(arguments) else None
        option, used = _read_option(word, following, short_valued, long_valued, options)
        options.append(option)
        index += used
    return options, min(index, len(arguments))


def all_options(
    arguments: tuple[str, ...], short_valued: str, long_valued: frozenset[str]
) -> tuple[list[Option], list[str]]:
    """Flags anywhere among operands, and the operands."""
    options: list[Option] = []
    operands: list[str] = []
    rest = arguments
    while rest:
        more, index = leading_options(rest, short_valued, long_valued)
        options.extend(more)
        if index and rest[index - 1] == "--":
            operands.extend(rest[index:])
            break
        operands.extend(rest[index : index + 1])
        rest = rest[index + 1 :]
    return options, operands


def _read_option(
    word: str, following: str | None, short_valued: str, long_valued: frozenset[str], options: list[Option]
) -> tuple[Option, int]:
    """The last option of `word` (earlier letters of a cluster go to `options`), and how many words it took."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        if equals:
            return Option(flag, value), 0
        if any(name.startswith(flag) for name in long_valued):
            return Option(flag, following), 1
        return Option(flag, None), 0
    for place, letter in enumerate(word[1:], 1):
        if letter in short_valued:
            glued = word[place + 1 :]
            return (Option("-" + letter, glued), 0) if glued else (Option("-" + letter, following), 1)
        options.append(Option("-" + letter, None))
    return Option("-", None), 0


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs that never open a file named in their arguments.
TEXT_ONLY = names("echo printf tr expr seq which id whoami uname pwd true false")

# Programs whose first operand is a pattern, with the short flags that take a value (so the word after them
# is not that operand) and the flags that give the pattern in another way.
_PATTERN_FIRST = {
    "grep": "ABCDdefm",
    "egrep": "ABCDdefm",
    "fgrep": "ABCDdefm",
    "rg": "ABCEMTdefgjmrt",
}
_PATTERN_FLAGS = ("--regexp", "--file", "--files", "--type-list")

# Names a shell pattern is tried against: `cat .e*` reads `.env` as surely as spelling it out.
_SECRET_SAMPLES = names(
    ".env id_rsa id_ed25519 id_ecdsa .netrc .npmrc .pgpass .pypirc .git-credentials .ssh .aws .gnupg"
)

_SYSTEM_SECRET = regex(r"(^|/)(proc/[^/]+/(task/[^/]+/)?environ|etc/g?shadow-?)$")


def file_words(program: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of `program` that may name files."""
    if program in TEXT_ONLY:
        return ()
    valued = _PATTERN_FIRST.get(program)
    if valued is None:
        return arguments
    pattern = _pattern_index(arguments, valued)
    return arguments if pattern is None else arguments[:pattern] + arguments[pattern + 1 :]


def _pattern_index(arguments: tuple[str, ...], valued: str) -> int | None:
    first: int | None = None
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "--":
            return index + 1 if first is None and index + 1 < len(arguments) else first
        if word.startswith("--"):
            if word.startswith(_PATTERN_FLAGS):
                return None
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], 1):
                if letter in "ef":
                    return None
                if letter in valued:
                    index += place == len(word) - 1
                    break
        elif first is None:
            first = index
        index += 1
    return first


def spellings(word: str) -> Iterator[str]:
    """The paths `word` may stand for: itself, a flag's value, `name=path`, `@path`, `host:path`."""
    yield word
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]
    if any(char.isspace() for char in word):
        return  # prose or code, not a path with something before it
    for piece in re.split(r"[=@:,]", word):
        if piece and piece != word:
            yield piece


def secret_by_shape(path: str) -> bool:
    """Secrets known by shape alone: process environments, shadow files, patterns over secret names."""
    normal = posixpath.normpath(path) if path else path
    if _SYSTEM_SECRET.search(normal):
        return True
    if not any(char in "*?[" for char in normal):
        return False
    return any(_pattern_over_secret(part) for part in normal.split("/"))


def _pattern_over_secret(part: str) -> bool:
    literal = re.sub(r"\[[^\]]*\]|[*?]", "", part)
    if len(literal) < 2 or part[0] in "*?":
        return False
    return any(fnmatchcase(sample, part) for sample in _SECRET_SAMPLES)


_TOP_LEVEL = names(
    "bin boot dev etc home lib lib32 lib64 libx32 media mnt nix opt proc root run sbin srv sys tmp usr var"
    " Applications Library System Users Volumes private"
)
_HARMLESS_DEVICES = names("null zero full random urandom tty stdin stdout stderr fd pts shm")
_LIKE_NO_DEVICE = regex(r"(?:null|zero|full|u?random|std(?:in|out|err))[\w.-]*")
"""`/dev/null2`: a slip of the finger makes a file, and no machine has a device of that name."""
_SAME_ROOT = regex(r"(?:/+\.)+(?=/|$)")  # other names of `/`

_HOME_PATH = regex(r"(?:~(?:[A-Za-z_][\w-]*)?|\$HOME|\$\{HOME[^}]*\})(/.*)?", re.DOTALL)
_ALL_ENTRIES = regex(r"[*.?]*")


def join_paths(path: str, here: str) -> str:
    """`path` seen from the directory `here`, both as written. What a process has for its root or its directory is not
    known here, so that of any process counts as ours: `/proc/$PPID/root/etc` is `/etc`."""
    if (link := process_link(path)) is not None:
        path = f"/{link.rest}" if link.name == "root" else link.rest or "."
    if not here or path.startswith(("/", "~", "$")):
        return path
    return f"{here}/{path}"


def is_root_like(path: str) -> bool:
    """`/`, a home directory or a top-level system directory, or all that is in one."""
    home = _HOME_PATH.fullmatch(path)
    if home:
        return _ALL_ENTRIES.fullmatch(posixpath.normpath(home[1] or "/").lstrip("/")) is not None
    if not path.startswith("/"):
        return False
    path = _SAME_ROOT.sub("", path, count=1) if _SAME_ROOT.match(path) else path
    parts = posixpath.normpath("/" + path.lstrip("/")).strip("/").split("/")
    if _ALL_ENTRIES.fullmatch(parts[0]):
        return len(parts) == 1 or _ALL_ENTRIES.fullmatch(parts[1]) is not None
    top = [name for name in _TOP_LEVEL if fnmatchcase(name, parts[0])]
    if len(parts) == 1:
        return bool(top)
    # What lies in /tmp is anyone's to throw away.
    return len(parts) == 2 and _ALL_ENTRIES.fullmatch(parts[1]) is not None and bool(set(top) - {"tmp"})


def is_raw_device(path: str) -> bool:
    """A device whose content would be overwritten, or a pattern that may name one (`/d*/sda`)."""
    if not path.startswith("/"):
        return False
    path = _SAME_ROOT.sub("", path, count=1) if _SAME_ROOT.match(path) else path
    parts = posixpath.normpath("/" + path.lstrip("/")).split("/")
    if len(parts) < 3 or not fnmatchcase("dev", parts[1].replace("[^", "[!")):
        return False
    return parts[2] not in _HARMLESS_DEVICES and not _LIKE_NO_DEVICE.fullmatch(parts[2])
