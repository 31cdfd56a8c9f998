"""Git's configuration format, read as git reads it, and which settings start no program.

`read_config` gives every setting of a file, or raises ConfigSyntaxError where git would refuse the file or where this
reader is not sure. `unlisted_keys` names the settings that are not on the allow list. Threat: a file that this reader
and git understand differently hides a setting from one of them; so the reader follows git's own parser character by
character (`config.c`), and whatever it does not know counts as a program being started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

_BOM: Final = "\ufeff"
_SKIPPED: Final = re.compile(r"(?:[ \t\r\n]+|[#;][^\n]*\n)*")
"""Between settings: white space as git has it (no form feed) and comments."""
_SECTION: Final = re.compile(r'\[([A-Za-z0-9.-]*)(?:\]|[ \t\r]+"((?:[^"\\\n]|\\[^\n])*)"\])')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*([=\n])")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PIECE: Final = re.compile(r'[ \t\r]+|[^ \t\r\n"\\#;]+|[\n"#;]|\\.', re.DOTALL)
_QUOTED_PIECE: Final = re.compile(r'[^"\\\n]+|["\n]|\\.', re.DOTALL)
_COMMENT: Final = re.compile(r"[^\n]*\n")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\b": "\b", '\\"': '"', "\\\\": "\\", "\\\n": ""}


class ConfigSyntaxError(ValueError):
    """Git would refuse this file, or nobody can say for certain what git would see in it."""

    stated_name = "ConfigSyntaxError"


class Setting(NamedTuple):
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


def read_config(text: str) -> list[Setting]:
    """All settings in order. Bytes that are not UTF-8 come as lone surrogates. Raises ConfigSyntaxError."""
    if "\0" in text:
        raise ConfigSyntaxError("a NUL ends values early in some versions of git")
    # Git takes the end of the file for a line break, also right after a backslash.
    text = text.removeprefix(_BOM).replace("\r\n", "\n") + "\n\n"
    found: list[Setting] = []
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
            found.append(Setting(*section, key[1].lower(), value))
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


_WORDS: Final = re.compile(r"[A-Za-z0-9_.,:=+ -]*")
_WITH_HELPER: Final = re.compile(r"[A-Za-z0-9+.-]*::")
_SCHEME: Final = re.compile(r"([A-Za-z0-9+.-]+)://")
_OWN_SCHEMES: Final = frozenset({"http", "https", "git", "ssh", "git+ssh", "ssh+git", "file", "ftp", "ftps"})
_AS_OPTION: Final = re.compile(r"(?:^|//|[@:])-")
_Check = Callable[[str | None], bool]


def is_plain_address(value: str | None) -> bool:
    """Whether fetching from this address starts nothing but git's own transports: `ext::sh -c …` and every other
    `<helper>::` or unknown scheme name a program, and a host that begins with a dash is an option of ssh."""
    if value is None or _WITH_HELPER.match(value) or _AS_OPTION.search(value):
        return False
    scheme = _SCHEME.match(value)
    return scheme is None or scheme[1].lower() in _OWN_SCHEMES


def _words(value: str | None) -> bool:
    return value is None or _WORDS.fullmatch(value) is not None


def _text(value: str | None) -> bool:
    return value is not None


def _one_of(*values: str) -> _Check:
    return lambda value: value is not None and value.lower() in values


_off: Final = _one_of("false", "no", "off", "0", "")


def _keys(check: _Check, section: str, keys: str) -> Iterator[tuple[str, _Check]]:
    return ((f"{section}.{key}", check) for key in keys.split())


_PLAIN: Final[dict[str, _Check]] = dict(
    [
        *_keys(
            _words,
            "core",
            "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol"
            " safecrlf quotepath abbrev sharedrepository compression loosecompression sparsecheckout"
            " sparsecheckoutcone trustctime checkstat preloadindex untrackedcache splitindex commitgraph"
            " multipackindex bigfilethreshold deltabasecachelimit packedgitlimit packedgitwindowsize fscache"
            " longpaths hidedotfiles warnambiguousrefs whitespace createobject fsync fsyncmethod fsyncobjectfiles",
        ),
        *_keys(_off, "core", "fsmonitor"),
        *_keys(_one_of("/dev/null"), "core", "hookspath attributesfile excludesfile"),
        *_keys(_off, "commit", "gpgsign"),
        *_keys(_off, "tag", "gpgsign"),
        *_keys(_one_of(""), "credential", "helper"),
        *_keys(_words, "extensions", "objectformat compatobjectformat noop noop-v1 preciousobjects relativeworktrees"),
        *_keys(_one_of("files", "reftable"), "extensions", "refstorage"),
        *_keys(is_plain_address, "extensions", "partialclone"),
        *_keys(_text, "user", "name email"),
        *_keys(_text, "author", "name email"),
        *_keys(_text, "committer", "name email"),
        *_keys(_words, "user", "useconfigonly"),
        *_keys(_words, "init", "defaultbranch defaultobjectformat defaultrefformat"),
        *_keys(_words, "pull", "rebase ff"),
        *_keys(_words, "push", "default autosetupremote followtags recursesubmodules"),
        *_keys(_words, "fetch", "prune prunetags recursesubmodules parallel writecommitgraph fsckobjects"),
        *_keys(_words, "merge", "ff conflictstyle renames stat log"),
        *_keys(_words, "rebase", "autosquash autostash updaterefs stat"),
        *_keys(_words, "rerere", "enabled autoupdate"),
        *_keys(_words, "gc", "auto autodetach autopacklimit pruneexpire reflogexpire reflogexpireunreachable"),
        *_keys(_words, "maintenance", "auto strategy autodetach"),
        *_keys(_words, "pack", "threads window depth writereverseindex usesparse"),
        *_keys(_words, "index", "version threads sparse skiphash"),
        *_keys(_words, "feature", "manyfiles experimental"),
        *_keys(_words, "status", "showuntrackedfiles relativepaths short branch submodulesummary"),
        *_keys(_words, "diff", "renames renamelimit algorithm context mnemonicprefix noprefix colormoved submodule"),
        *_keys(_words, "log", "date decorate abbrevcommit follow"),
        *_keys(_words, "color", "ui diff status branch"),
        *_keys(_words, "commit", "verbose status"),
        *_keys(_words, "i18n", "commitencoding logoutputencoding"),
        *_keys(_words, "branch", "autosetupmerge autosetuprebase"),
        *_keys(_words, "receive", "denycurrentbranch denynonfastforwards denydeletes fsckobjects"),
        *_keys(_words, "transfer", "fsckobjects"),
        *_keys(_words, "checkout", "workers thresholdforparallelism guess"),
        *_keys(is_plain_address, "checkout", "defaultremote"),
        *_keys(is_plain_address, "remote", "pushdefault"),
        *_keys(_words, "submodule", "recurse fetchjobs alternatelocation alternateerrorstrategy propagatebranches"),
        *_keys(_text, "submodule", "active"),
        *_keys(_words, "lfs", "repositoryformatversion"),
    ]
)
_OF_EACH: Final[dict[str, _Check]] = dict(
    [
        *_keys(is_plain_address, "remote", "url pushurl"),
        *_keys(_text, "remote", "fetch push"),
        *_keys(_words, "remote", "promisor partialclonefilter prune prunetags mirror gh-resolved"),
        *_keys(_one_of("--no-tags", "--tags", ""), "remote", "tagopt"),
        *_keys(is_plain_address, "branch", "remote pushremote"),
        *_keys(_text, "branch", "merge description vscode-merge-base gh-merge-base"),
        *_keys(_words, "branch", "rebase"),
        *_keys(is_plain_address, "submodule", "url"),
        *_keys(_text, "submodule", "path branch"),
        *_keys(_words, "submodule", "active ignore fetchrecursesubmodules shallow"),
        *_keys(_one_of("checkout", "rebase", "merge", "none"), "submodule", "update"),
    ]
)
"""`<section>.<name>.<key>`."""
WORKTREE: Final = "core.worktree"
WORKTREE_CONFIG: Final = "extensions.worktreeconfig"


def unlisted_keys(settings: Iterable[Setting], *, accepted: Callable[[Setting], bool] | None = None) -> list[str]:
    """The names of settings that may make git start a program, read further settings or work elsewhere, each once.
    `accepted` decides what nobody can judge by the value alone: `core.worktree`, `extensions.worktreeConfig`."""
    found: dict[str, None] = {}
    for setting in settings:
        allowed = _PLAIN if setting.subsection is None else _OF_EACH
        check = _words if setting.section == "advice" else allowed.get(f"{setting.section}.{setting.key}")
        if (check is None or not check(setting.value)) and not (accepted is not None and accepted(setting)):
            found[setting.name] = None
    return list(found)
