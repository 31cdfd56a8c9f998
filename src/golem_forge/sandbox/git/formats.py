"""Git's text formats, read exactly as git reads them: config files, `core.worktree`, and `.gitignore`.

`read_config` returns every setting or raises ConfigSyntaxError where git would refuse the file or this reader is
not sure; `unlisted_keys` names the settings that are not on the allow list of those that start no program.
`keeps_its_work_tree` says whether a repository's work tree is the directory it stands in. GitIgnore says which
entries git does not show: the nearest file that says anything decides, in it the last line that matches.

Threats: a file that this reader and git understand differently hides a setting from one of them, so the reader
follows git's own parser (`config.c`), and whatever it does not know counts as a program being started.
`core.worktree` makes git take another directory, `/` for instance, for the work tree. The child whose files are
searched wrote the ignore lines: a pattern is a set of states moved along by bit operations, one step per character,
never a regular expression.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.protected import GIT_FILE

_BOM: Final = "\ufeff"
_SKIPPED: Final = regex(r"(?:[ \t\r\n]+|[#;][^\n]*\n)*")
"""Between settings: white space as git has it (no form feed) and comments."""
_SECTION: Final = regex(r'\[([A-Za-z0-9.-]*)(?:\]|[ \t\r]+"((?:[^"\\\n]|\\[^\n])*)"\])')
_KEY: Final = regex(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*([=\n])")
_ESCAPED: Final = regex(r"\\(.)", re.DOTALL)
_PIECE: Final = regex(r'[ \t\r]+|[^ \t\r\n"\\#;]+|[\n"#;]|\\.', re.DOTALL)
_QUOTED_PIECE: Final = regex(r'[^"\\\n]+|["\n]|\\.', re.DOTALL)
_COMMENT: Final = regex(r"[^\n]*\n")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\b": "\b", '\\"': '"', "\\\\": "\\", "\\\n": ""}


class ConfigSyntaxError(ValueError):
    """Git would refuse this file, or nobody can say for certain what git would see in it."""

    stated_name = "ConfigSyntaxError"


class GitSetting(NamedTuple):
    section: str
    """In small letters, as git compares it."""
    subsection: str | None
    """As written: git tells `[remote "A"]` from `[remote "a"]`."""
    key: str
    """In small letters."""
    value: str | None
    """None: the key alone, which means true."""

    @property
    def name(self) -> str:
        return ".".join(part for part in (self.section, self.subsection, self.key) if part is not None)


def read_config(text: str) -> list[GitSetting]:
    """All settings in order. Bytes that are not UTF-8 come as lone surrogates. Raises ConfigSyntaxError."""
    if "\0" in text:
        raise ConfigSyntaxError("a NUL ends values early in some versions of git")
    # Git takes the end of the file for a line break, also right after a backslash.
    text = text.removeprefix(_BOM).replace("\r\n", "\n") + "\n\n"
    found: list[GitSetting] = []
    section: tuple[str, str | None] | None = None
    at = _skipped(text, 0)
    while at < len(text):
        if text[at] == "[":
            section, at = _section(text, at)
        else:
            key = _KEY.match(text, at)
            if key is None or section is None:
                raise ConfigSyntaxError(f"no setting: {text[at : at + 20]!r}")
            value: str | None = None
            at = key.end()
            if key[2] == "=":
                value, at = _value(text, at)
            found.append(GitSetting(*section, key[1].lower(), value))
        at = _skipped(text, at)
    return found


def _skipped(text: str, at: int) -> int:
    skipped = _SKIPPED.match(text, at)
    return skipped.end() if skipped else at


def _section(text: str, at: int) -> tuple[tuple[str, str | None], int]:
    header = _SECTION.match(text, at)
    if header is None:
        raise ConfigSyntaxError(f"no section: {text[at : at + 20]!r}")
    name, subsection = header[1].lower(), header[2]
    if subsection is not None:
        subsection = _ESCAPED.sub(r"\1", subsection)
    elif not name:
        raise ConfigSyntaxError("a section without a name")
    section, dot, old_form = name.partition(".")  # `[remote.origin]`: what follows the dot is a subsection too
    if dot:
        subsection = old_form if subsection is None else f"{old_form}.{subsection}"
    return (section, subsection), header.end()


def _value(text: str, at: int) -> tuple[str, int]:
    """Quotes and escapes resolved; comments and white space at both ends dropped, but not what was quoted."""
    kept: list[str] = []
    spaces = ""
    quoted = False
    while True:
        piece = (_QUOTED_PIECE if quoted else _PIECE).match(text, at)
        assert piece is not None, "every character is in one of the classes, and the text ends in a line break"
        at = piece.end()
        found = piece[0]
        if found == "\n":
            if quoted:
                raise ConfigSyntaxError("a quote that is not closed")
            return "".join(kept), at
        if not quoted:
            if found[0] in " \t\r":
                spaces = " " * len(found) if kept else ""
                continue
            if found in "#;":
                comment = _COMMENT.match(text, at)
                assert comment is not None
                return "".join(kept), comment.end()
            if spaces:
                kept.append(spaces)
                spaces = ""
        if found == '"':
            quoted = not quoted
        elif found[0] == "\\":
            if found not in _ESCAPES:
                raise ConfigSyntaxError(f"an unknown escape: {found!r}")
            if resolved := _ESCAPES[found]:  # nothing stands for a continued line
                kept.append(resolved)
        else:
            kept.append(found)


_WORDS: Final = regex(r"[A-Za-z0-9_.,:=+ -]*")
_WITH_HELPER: Final = regex(r"[A-Za-z0-9+.-]*::")
_SCHEME: Final = regex(r"([A-Za-z0-9+.-]+)://")
_OWN_SCHEMES: Final = frozenset({"http", "https", "git", "ssh", "git+ssh", "ssh+git", "file", "ftp", "ftps"})
_AS_OPTION: Final = regex(r"(?:^|//|[@:])-")
_Check = Callable[[str | None], bool]


def is_plain_address(value: str | None) -> bool:
    """Whether fetching from this address starts nothing but git's own transports: `ext::sh -c …` and every other
    `<helper>::` or unknown scheme name a program, and a host that begins with a dash is an option of ssh."""
    if value is None or _WITH_HELPER.match(value) or _AS_OPTION.search(value):
        return False
    scheme = _SCHEME.match(value)
    return scheme is None or scheme[1].lower() in _OWN_SCHEMES


def _is_plain_words(value: str | None) -> bool:
    return value is None or _WORDS.fullmatch(value) is not None


def _is_text(value: str | None) -> bool:
    return value is not None


def _one_of(*values: str) -> _Check:
    return lambda value: value is not None and value.lower() in values


_is_off: Final = _one_of("false", "no", "off", "0", "")


def _checked_keys(table: Mapping[_Check, Mapping[str, str]]) -> dict[str, _Check]:
    """`section.key` → its check, of keys divided by spaces."""
    checked = ((check, section, keys) for check, sections in table.items() for section, keys in sections.items())
    return {f"{section}.{key}": check for check, section, keys in checked for key in keys.split()}


_PLAIN: Final = _checked_keys(
    {
        _is_plain_words: {
            "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks"
            " autocrlf eol safecrlf quotepath abbrev sharedrepository compression loosecompression sparsecheckout"
            " sparsecheckoutcone trustctime checkstat preloadindex untrackedcache splitindex commitgraph"
            " multipackindex bigfilethreshold deltabasecachelimit packedgitlimit packedgitwindowsize fscache"
            " longpaths hidedotfiles warnambiguousrefs whitespace createobject fsync fsyncmethod fsyncobjectfiles",
            "extensions": "objectformat compatobjectformat noop noop-v1 preciousobjects relativeworktrees",
            "user": "useconfigonly",
            "init": "defaultbranch defaultobjectformat defaultrefformat",
            "pull": "rebase ff",
            "push": "default autosetupremote followtags recursesubmodules",
            "fetch": "prune prunetags recursesubmodules parallel writecommitgraph fsckobjects",
            "merge": "ff conflictstyle renames stat log",
            "rebase": "autosquash autostash updaterefs stat",
            "rerere": "enabled autoupdate",
            "gc": "auto autodetach autopacklimit pruneexpire reflogexpire reflogexpireunreachable",
            "maintenance": "auto strategy autodetach",
            "pack": "threads window depth writereverseindex usesparse",
            "index": "version threads sparse skiphash",
            "feature": "manyfiles experimental",
            "status": "showuntrackedfiles relativepaths short branch submodulesummary",
            "diff": "renames renamelimit algorithm context mnemonicprefix noprefix colormoved submodule",
            "log": "date decorate abbrevcommit follow",
            "color": "ui diff status branch",
            "commit": "verbose status",
            "i18n": "commitencoding logoutputencoding",
            "branch": "autosetupmerge autosetuprebase",
            "receive": "denycurrentbranch denynonfastforwards denydeletes fsckobjects",
            "transfer": "fsckobjects",
            "checkout": "workers thresholdforparallelism guess",
            "submodule": "recurse fetchjobs alternatelocation alternateerrorstrategy propagatebranches",
            "lfs": "repositoryformatversion",
        },
        _is_off: {"core": "fsmonitor", "commit": "gpgsign", "tag": "gpgsign"},
        _one_of("/dev/null"): {"core": "hookspath attributesfile excludesfile"},
        _one_of(""): {"credential": "helper"},
        _one_of("files", "reftable"): {"extensions": "refstorage"},
        is_plain_address: {"extensions": "partialclone", "checkout": "defaultremote", "remote": "pushdefault"},
        _is_text: {
            "user": "name email",
            "author": "name email",
            "committer": "name email",
            "submodule": "active",
        },
    }
)
_OF_EACH: Final = _checked_keys(
    {
        is_plain_address: {"remote": "url pushurl", "branch": "remote pushremote", "submodule": "url"},
        _is_text: {
            "remote": "fetch push",
            "branch": "merge description vscode-merge-base gh-merge-base",
            "submodule": "path branch",
        },
        _is_plain_words: {
            "remote": "promisor partialclonefilter prune prunetags mirror gh-resolved",
            "branch": "rebase",
            "submodule": "active ignore fetchrecursesubmodules shallow",
        },
        _one_of("--no-tags", "--tags", ""): {"remote": "tagopt"},
        _one_of("checkout", "rebase", "merge", "none"): {"submodule": "update"},
    }
)
"""`<section>.<name>.<key>`."""
WORKTREE: Final = "core.worktree"
WORKTREE_CONFIG: Final = "extensions.worktreeconfig"


def unlisted_keys(settings: Iterable[GitSetting], *, accepted: Callable[[GitSetting], bool] | None = None) -> list[str]:
    """The names of settings that may make git start a program, read further settings or work elsewhere, each once.
    `accepted` decides what nobody can judge by the value alone: `core.worktree`, `extensions.worktreeConfig`."""
    found: dict[str, None] = {}
    for setting in settings:
        allowed = _PLAIN if setting.subsection is None else _OF_EACH
        check = _is_plain_words if setting.section == "advice" else allowed.get(f"{setting.section}.{setting.key}")
        if (check is None or not check(setting.value)) and not (accepted is not None and accepted(setting)):
            found[setting.name] = None
    return list(found)


_SHOWN_ERRORS: Final = 500
_CREDENTIALS: Final = regex(r"://[^/\s'\"]*@")


def git_words(errors: bytes) -> str:
    """What git wrote on standard error, on one line."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    return _CREDENTIALS.sub("://…@", escape_control_chars("; ".join(lines)))[:_SHOWN_ERRORS]


_LARGEST_CONFIG: Final = 1 << 20
_GIT_LINK: Final = "gitdir: "


def is_repository_root(directory: str) -> bool:
    """Git stops here on its way up: at a `.git`, or in a directory that is a repository itself."""
    bare = all(os.path.lexists(os.path.join(directory, name)) for name in ("HEAD", "objects", "refs"))
    return bare or os.path.lexists(os.path.join(directory, GIT_FILE))


def keeps_its_work_tree(directory: str, host_path: Callable[[str], str]) -> bool:
    """Of a repository. A `.git` that is a file is followed; what cannot be read or understood counts as no, links among
    it, for they may lead elsewhere inside walls. `host_path`: where an absolute path of the walls is on the host."""
    if not os.path.lexists(os.path.join(directory, GIT_FILE)):
        return False  # a bare repository: without a work tree, or with one elsewhere
    try:
        git = _git_directory(os.path.realpath(directory), host_path)
        common = _read_text(os.path.join(git, "commondir")).rstrip("\r\n")
        places = {git, _resolve_directory(git, common, host_path)}
        settings = [
            setting
            for place in places
            for name in ("config", "config.worktree")
            for setting in read_config(_read_text(os.path.join(place, name)))
            if setting.name == WORKTREE
        ]
    except (OSError, ConfigSyntaxError, ValueError):
        return False
    # Relative ones are the same inside walls, where zones stand elsewhere.
    return all(
        setting.value
        and not os.path.isabs(setting.value)
        and os.path.realpath(os.path.join(git, setting.value)) == os.path.realpath(directory)
        for setting in settings
    )


def _resolve_directory(start: str, path: str, host_path: Callable[[str], str]) -> str:
    found = os.path.normpath(host_path(path) if os.path.isabs(path) else os.path.join(start, path))
    if not os.path.isdir(found) or os.path.realpath(found) != found:
        raise ValueError("no directory, or behind a link")
    return found


def _git_directory(directory: str, host_path: Callable[[str], str]) -> str:
    git = os.path.join(directory, GIT_FILE)
    if os.path.isdir(git) and not os.path.islink(git):
        return git
    text = _read_text(git)
    if not text.startswith(_GIT_LINK):
        raise ValueError("no link to a repository")
    return _resolve_directory(directory, text.removeprefix(_GIT_LINK).rstrip("\r\n"), host_path)


def _read_text(path: str) -> str:
    """Empty where there is none. Raises OSError, and ValueError for what is larger than settings are."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    with open(handle, encoding="utf-8", errors="surrogateescape", newline="") as file:
        text = file.read(_LARGEST_CONFIG + 1)
    if len(text) > _LARGEST_CONFIG:
        raise ValueError("too large")
    return text


LARGEST_IGNORE_FILE: Final = 1 << 16
"""Bytes of a file that are read; one that has more counts as hiding everything."""
_LONGEST: Final = 1024
"""Characters of a line that is compared: one that has more matches everything, or nothing if it begins with `!`."""
_LINES_PER_CLOCK: Final = 32
_LITERAL, _ONE, _STAR, _SLASH_STAR, _ENTER = range(5)
_WILD: Final = frozenset("*?[\\")
_CLASSES: Final = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": " \t\n\r\f\v",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
_ANY: Final = frozenset(map(chr, range(256))) - {"/"}

PatternToken = tuple[int, frozenset[str]]


class GitIgnore:
    def __init__(self, data: bytes, depth: int, above: GitIgnore | None = None) -> None:
        """`data`: a file's content; `depth`: how many components lead to the directory that the file is in."""
        text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
        lines = (_parse_line(line) for line in text.split("\n"))
        self._lines = [line for line in reversed(list(lines)) if line is not None]
        self._depth = depth
        self._above = above

    def ignores(self, parts: tuple[str, ...], is_directory: bool, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Whether git leaves an entry out; of what is above it nothing is asked. `is_over`: no time is left to compare;
        the entry then counts as left out."""
        here: GitIgnore | None = self
        compared = 0
        while here is not None:
            path = "/".join(parts[here._depth :]).encode("utf-8", "surrogateescape").decode("latin-1")
            name = path.rpartition("/")[2]
            for line in here._lines:
                compared += 1
                if not compared % _LINES_PER_CLOCK and is_over():
                    return True
                if (is_directory or not line.only_directories) and line.matches(path, name):
                    return not line.keeps
            here = here._above
        return False


class _IgnoreLine:
    def __init__(self, pattern: str, *, keeps: bool, only_directories: bool) -> None:
        self.keeps = keeps
        self.only_directories = only_directories
        self._by_name = "/" not in pattern
        pattern = pattern.removeprefix("/")
        wild = next((index for index, char in enumerate(pattern) if char in _WILD), len(pattern))
        self._whole = pattern if wild == len(pattern) else None
        """A pattern without wildcards is compared as it is."""
        tail = pattern[1:]
        self._ending = tail if self._by_name and pattern[:1] == "*" and not _WILD & set(tail) else None
        self._literal = pattern[:wild]
        """Git compares what stands before the first wildcard, and begins to match after it."""
        rest = None if self._whole is not None else _tokens(pattern[wild:], by_name=self._by_name)
        self._states = None if rest is None else _PatternStates(rest)

    def matches(self, path: str, name: str) -> bool:
        text = name if self._by_name else path
        if self._whole is not None:
            return text == self._whole
        if self._ending is not None:
            return text.endswith(self._ending)
        if self._states is None or not text.startswith(self._literal):
            return False
        return self._states.match(text[len(self._literal) :])


class _PatternStates:
    """Which tokens may come next, as bits, while a text is read."""

    def __init__(self, tokens: list[PatternToken]) -> None:
        self._tokens = tokens
        self._steps: dict[str, int] = {}
        self._end = 1 << len(tokens)
        self._stars = self._mask(_STAR)
        self._slash_stars = self._mask(_SLASH_STAR)
        self._enters = self._mask(_ENTER)

    def match(self, text: str) -> bool:
        now = self._without_reading(1)
        for char in text:
            kept = now & self._slash_stars
            if char != "/":
                kept |= now & self._stars
            now = self._without_reading(kept | (now & self._step(char)) << 1)
            if not now:
                return False
        return bool(now & self._end)

    def _without_reading(self, now: int) -> int:
        while True:
            wider = now | (now & (self._stars | self._slash_stars | self._enters)) << 1 | (now & self._enters) << 3
            if wider == now:
                return now
            now = wider

    def _step(self, char: str) -> int:
        found = self._steps.get(char)
        if found is None:
            found = sum(1 << index for index, (_, chars) in enumerate(self._tokens) if char in chars)
            self._steps[char] = found
        return found

    def _mask(self, wanted: int) -> int:
        return sum(1 << index for index, (kind, _) in enumerate(self._tokens) if kind == wanted)


def _parse_line(line: str) -> _IgnoreLine | None:
    if not line or line.startswith("#"):
        return None
    line = _trimmed(line.removesuffix("\r").partition("\0")[0])
    keeps = line.startswith("!")
    line = line[keeps:]
    only_directories = line.endswith("/")
    line = line.removesuffix("/")
    if len(line) > _LONGEST:
        return None if keeps else _IgnoreLine("*", keeps=False, only_directories=False)
    return _IgnoreLine(line, keeps=keeps, only_directories=only_directories) if line else None


def _trimmed(line: str) -> str:
    """Without the spaces at its end, but for one that a backslash keeps."""
    kept = line.rstrip(" ")
    escaped = (len(kept) - len(kept.rstrip("\\"))) % 2 == 1
    return f"{kept} " if escaped and kept != line else kept


def _tokens(pattern: str, *, by_name: bool) -> list[PatternToken] | None:
    """None: git never matches it."""
    tokens: list[PatternToken] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            start = at
            while pattern[at : at + 1] == "*":
                at += 1
            after = pattern[at : at + 1] in ("", "/") or pattern[at : at + 2] == "\\/"
            if at - start > 1 and not by_name and (start == 0 or pattern[start - 1] == "/") and after:
                if pattern[at : at + 1] == "/":
                    tokens.append((_ENTER, frozenset()))  # `**/` may stand for nothing
                tokens.append((_SLASH_STAR, frozenset()))
            else:
                tokens.append((_STAR, frozenset()))
            continue
        at += 1
        if char == "?":
            tokens.append((_ONE, _ANY))
        elif char == "[":
            found = _parse_set(pattern, at)
            if found is None:
                return None
            members, at = found
            tokens.append((_ONE, members))
        else:
            if char == "\\":
                if at == len(pattern):
                    return None
                char = pattern[at]
                at += 1
            tokens.append((_LITERAL, frozenset(char)))
    return tokens


def _parse_set(pattern: str, at: int) -> tuple[frozenset[str], int] | None:
    """After a `[`: its members and where it ends. A set never stands for a slash."""
    negated = pattern[at : at + 1] in ("!", "^") and at < len(pattern)
    at += negated
    members: set[str] = set()
    before = ""
    first = True
    while first or pattern[at : at + 1] != "]":
        first = False
        if at >= len(pattern):
            return None
        char = pattern[at]
        if char == "-" and before and pattern[at + 1 : at + 2] not in ("", "]"):
            at += 1
            if pattern[at] == "\\":
                at += 1
            if at >= len(pattern):
                return None
            members |= set(map(chr, range(ord(before), ord(pattern[at]) + 1)))
            before = ""
        elif char == "[" and pattern[at + 1 : at + 2] == ":":
            end = pattern.find("]", at + 2)
            if end < 0:
                return None
            name = pattern[at + 2 : end]
            if name.endswith(":"):
                if name[:-1] not in _CLASSES:
                    return None
                members |= set(_CLASSES[name[:-1]])
                at, before = end, ""
            else:  # no `:]`: an ordinary bracket
                members.add("[")
                before = "["
        else:
            if char == "\\":
                at += 1
                if at >= len(pattern):
                    return None
                char = pattern[at]
            members.add(char)
            before = char
        at += 1
    return (_ANY - members if negated else frozenset(members) - {"/"}), at + 1
