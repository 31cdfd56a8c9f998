"""The trust card: everything a person needs to decide whether a tool's code may run as theirs.

`trust_card` takes a tool folder as it is, and the version that was trusted last if there is one. Gives a text that no
file can steer or imitate: who made it, what it may do, whether it is tested, and every line of it (or what changed).
`permissions` gives one Permission for each thing a manifest can ask for, also for what it does not;
`compare_permissions` puts those of two versions beside each other.

Every line of a file begins with a mark, so that no file can look like a line of the card. Threats: characters that
steer a terminal, a file too long to be read to its end, text that Python reads as other text than it is, compiled code
that runs in place of its source. Each is a warning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from golem_forge.core.changes import file_diff
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import count_control_chars, display_name, escape_control_chars
from golem_forge.sandbox.zones import AccessMode
from golem_forge.usertools.build.requirements import unread_packages
from golem_forge.usertools.diagnostics import Unusable
from golem_forge.usertools.folder import ELF, FolderFiles, ToolEntry
from golem_forge.usertools.manifest import DEFAULT_TIMEOUT_S, MANIFEST_FILE, ToolManifest
from golem_forge.usertools.manifest.tool_yaml import read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustCard:
    text: str
    """What the tool is and what it may do; for a tool that was never trusted also every file."""
    diff: str
    """Against the version that was trusted last; empty without one."""
    warnings: tuple[str, ...] = ()

    @property
    def full_text(self) -> str:
        """The whole card as plain text."""
        warnings = [f"warning: {one}" for one in self.warnings]
        return "\n".join((*warnings, self.text, *((self.diff,) if self.diff else ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFacts:
    """What the card says besides the files."""

    provenance: str
    folder_shown: str
    build_hosts: Sequence[str] = ()
    similar: Sequence[str] = ()
    shadows: bool = False
    """Whether a built-in tool has this name."""
    denied: int = 0
    """How often this very version was denied."""


def trust_card(entry: ToolEntry, files: FolderFiles, facts: ToolFacts, old: FolderFiles | None = None) -> TrustCard:
    """Builds the trust card. `old`: the version that was trusted last."""
    manifest = entry.manifest
    if old is not None and old.digest == files.digest:
        old = None
    shown = CardFiles(files, manifest.entrypoint, old)
    before = version_manifest(entry.name, old)
    version = f"{before.version} -> " if before and before.version != manifest.version else ""
    tests = len(manifest.tests)
    was = permissions(before, build_hosts=facts.build_hosts) if before else None
    granted, changed = compare_permissions(was, permissions(manifest, build_hosts=facts.build_hosts))
    head = [
        f"user tool '{entry.name}'",
        f"version: {version}{manifest.version}",
        f"description: {manifest.description}",
        f"provenance: {facts.provenance}",
        f"folder: {facts.folder_shown}",
        f"digest: {entry.digest}",
        f"runs: {_program_line(manifest.entrypoint, files)}",
        *granted,
        f"tests: {tests or 'no'} test{'' if tests == 1 else 's'}",
        *([f"similar tools: {', '.join(facts.similar)}"] if facts.similar else ()),
        *([f"replaces the built-in tool '{entry.name}'"] if facts.shadows else ()),
        *([f"denied {'once' if facts.denied == 1 else f'{facts.denied} times'} before"] if facts.denied else ()),
    ]
    if old is None:
        diff, body = "", ["files:", shown.full()]
    else:
        diff, body = shown.changes(), ["changes since it was trusted: below"]
        if same := shown.unchanged():
            body.append(display_name(f"unchanged files: {', '.join(same)}"))
    warnings = list(shown.warnings)
    if unread := unread_packages(files, manifest.entrypoint):
        warnings.append(unread)
    if facts.shadows:
        warnings.insert(0, f"replaces the built-in tool '{entry.name}'")
    if changed:
        warnings.insert(0, f"what it may do changed since it was trusted: {', '.join(changed)}")
    text = "\n".join((*map(display_name, head), *body))
    return TrustCard(text=text, diff=diff, warnings=tuple(warnings))


def _program_line(entrypoint: str, files: FolderFiles) -> str:
    built = entrypoint not in files.files and f"{entrypoint}.go" in files.files
    return f"{entrypoint}, built from {entrypoint}.go" if built else entrypoint


def version_manifest(name: str, files: FolderFiles | None) -> ToolManifest | None:
    """Returns the manifest of a version; None if it cannot be read any more."""
    if files is None or (data := files.files.get(MANIFEST_FILE)) is None:
        return None

    try:
        return read_manifest(data, folder=name)
    except Unusable:
        return None


LONGEST_FILE: Final = 256 * 1024
"""In bytes; of a longer file the beginning and the end are shown."""
_SHOWN_END: Final = 32 * 1024
_MOST_TOGETHER: Final = 1 << 20
_MOST_COMPARED: Final = 1 << 20
_LONG_LINE: Final = regex(r"[^\n]{1001}")
_LINE_MARK: Final = "  | "
_ENCODING: Final = regex(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_LINE_END: Final = regex(r"\r\n|\r|\n")
"""As Python reads it: a lone CR ends a line, too."""
_USUAL_ENCODINGS: Final = frozenset({"utf-8", "utf8", "ascii", "us-ascii"})
_COMPILED: Final = (".pyc", ".pyo", ".so", ".syso")


class CardFiles:
    """The files of one version, in the order in which they matter: manifest, program, the rest by name."""

    def __init__(self, files: FolderFiles, entrypoint: str, old: FolderFiles | None = None) -> None:
        self._new = files
        self._old = old
        first = (MANIFEST_FILE, entrypoint, f"{entrypoint}.go")
        names = {*files.files, *(old.files if old else ())}
        self._names = sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name))
        self._entrypoint = entrypoint
        self._room = _MOST_TOGETHER
        self.warnings: list[str] = []

    def full(self) -> str:
        return "\n".join(line for name in self._names for line in self._file(name))

    def changes(self) -> str:
        """Against the old version: nothing for a file that is the same."""
        assert self._old is not None
        return "\n".join(line for name in self._names for line in self._change(name, self._old))

    def unchanged(self) -> tuple[str, ...]:
        old, new = self._old, self._new
        assert old is not None
        return tuple(
            name
            for name in self._names
            if old.files.get(name) == new.files.get(name) and (name in old.executable) == (name in new.executable)
        )

    def _file(self, name: str) -> Iterator[str]:
        data = self._new.files[name]
        marks = ", executable" if name in self._new.executable else ""
        text = _decode_text(data)
        if text is None:
            yield f"{display_name(name)}: {self._kind(name, data)} ({_content_identity(data)}{marks})"
            self._warn_binary(name, data)
            return
        self._warn_text(name, text)
        yield f"{display_name(name)} ({_byte_count(len(data))}{marks}):"
        yield from (_LINE_MARK + line for line in _split_lines(self._bounded(name, text)))

    def _change(self, name: str, old: FolderFiles) -> Iterator[str]:
        before, after = old.files.get(name), self._new.files.get(name)
        if before is not None and after is not None:
            was, now = name in old.executable, name in self._new.executable
            if was != now:
                yield f"{display_name(name)}: executable bit {'added' if now else 'removed'}"
        elif after is not None and name in self._new.executable:
            yield f"{display_name(name)}: is executable"
        if before == after:
            return
        one, other = _decode_text(before), _decode_text(after)
        if after is not None and other is None:
            yield f"{display_name(name)}: {_replacement_text(self._kind(name, after), before, after)}"
            self._warn_binary(name, after)
            return
        if other is not None:
            self._warn_text(name, other)
        if before is not None and one is None:
            yield f"{display_name(name)}: {_replacement_text('was binary', before, after)}"
        elif len(one or "") + len(other or "") > _MOST_COMPARED:
            yield f"{display_name(name)}: {_replacement_text('too long to be compared', before, after)}"
            one = None
        if other is not None and one is None and len(other) > LONGEST_FILE:
            yield from (_LINE_MARK + line for line in _split_lines(self._bounded(name, other)))
        elif one is not None or other is not None:  # without an old text the new one is shown whole
            yield from _split_lines(self._bounded(name, "\n".join(file_diff(name, one, other))))

    def _kind(self, name: str, data: bytes) -> str:
        if data.startswith(ELF) and name == self._entrypoint:
            return "prebuilt binary, source not shown"
        return "binary, not shown"

    def _bounded(self, name: str, text: str) -> str:
        """Returns a text that is safe to print and not too long. What is left out is named in its place and as a
        warning.
        """
        most = min(LONGEST_FILE, self._room)
        if len(text) <= most:
            self._room -= len(text)
            return escape_control_chars(text)
        end = min(_SHOWN_END, most // 2)
        self._room -= 2 * end
        left = len(text) - 2 * end
        self.warnings.append(f"{display_name(name)}: too long to be shown whole; {left:,} characters are left out")
        first, last = escape_control_chars(text[:end]), escape_control_chars(text[len(text) - end :])
        return f"{first}…\n[{left:,} characters of {display_name(name)} are left out]\n…{last}"

    def _warn_binary(self, name: str, data: bytes) -> None:
        if name == self._entrypoint and not data.startswith(ELF):
            self.warnings.append(f"{display_name(name)}: is the program that runs, and cannot be shown as text")
        if name.endswith(_COMPILED) or "__pycache__" in name.split("/"):
            self.warnings.append(f"{display_name(name)}: compiled code, which may run in place of the source beside it")

    def _warn_text(self, name: str, text: str) -> None:
        text = text[:_MOST_TOGETHER]  # more of it is not shown, which is a warning of its own
        if hidden := count_control_chars(text.replace("\r\n", "\n")):
            what = "character is shown as an escape" if hidden == 1 else "characters are shown as escapes"
            self.warnings.append(f"{display_name(name)}: {hidden} control or invisible {what}")
        if _LONG_LINE.search(text):
            self.warnings.append(f"{display_name(name)}: has lines of over 1000 characters; read them to their end")
        if encoding := _declared_encoding(text):  # whatever it is called: Python runs any file it is given
            self.warnings.append(
                f"{display_name(name)}: declares the encoding '{escape_control_chars(encoding)}'; Python may read "
                "other code than is shown"
            )


def _replacement_text(kind: str, before: bytes | None, after: bytes | None) -> str:
    old, new = ("nothing" if data is None else _content_identity(data) for data in (before, after))
    return f"{kind}: {old} -> {new}"


def _decode_text(data: bytes | None) -> str | None:
    """Returns the text; None if there is none or it is binary."""
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _split_lines(text: str) -> list[str]:
    """Split at LF only; other ends of a line are shown as what they are."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _declared_encoding(text: str) -> str:
    """Returns the encoding that the first two lines declare to Python, if it differs from the shown one."""
    for line in _LINE_END.split(text, 2)[:2]:
        if found := _ENCODING.match(line):
            name = found[1].lower().replace("_", "-")
            return "" if name in _USUAL_ENCODINGS or name.startswith("utf-8-") else found[1]
    return ""


def _content_identity(data: bytes) -> str:
    return f"sha256 {hashlib.sha256(data).hexdigest()}, {_byte_count(len(data))}"


def _byte_count(count: int) -> str:
    return "1 byte" if count == 1 else f"{count:,} bytes"


NO_PERMISSION: Final = "none"
ALL_READ_ONLY: Final = "all zones, read-only"
WHOLE_NETWORK: Final = "the whole network of this machine, its own services on loopback included"

PERMISSION_HELP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "zones": "directories it can see; `rw` ones it can change",
        "network": "hosts it can reach while it runs",
        "environment": "variables that are copied for it from the environment Forge was started in",
        "calls": "other tools it can call; Forge judges each of these calls by itself",
        "build downloads": "hosts its dependencies are fetched from when it is built; its runs do not reach them",
        "timeout": "how long one call may take",
        "background": "whether it goes on running after its call has returned",
    }
)
"""Every label, and what it means."""


@dataclass(frozen=True, slots=True)
class Permission:
    label: str
    words: str
    always: bool = True
    """False leaves the line out if the value is the usual one."""

    @property
    def line(self) -> str:
        return f"{self.label}: {self.words}"


def permissions(manifest: ToolManifest, *, build_hosts: Sequence[str] = ()) -> tuple[Permission, ...]:
    unusual = manifest.timeout != DEFAULT_TIMEOUT_S
    return (
        Permission("zones", _zone_words(manifest.zones, only_paths=manifest.only_paths)),
        Permission("network", _network_words(manifest.network)),
        Permission("environment", _join_or_none(one.name + " (required)" * one.required for one in manifest.env)),
        Permission("calls", _join_or_none(manifest.calls)),
        Permission("build downloads", _join_or_none(build_hosts), always=bool(build_hosts)),
        Permission("timeout", f"{manifest.timeout:g} seconds", always=unusual),
        Permission("background", "goes on after its call" if manifest.background else "no", always=manifest.background),
    )


def compare_permissions(
    old: Sequence[Permission] | None, new: Sequence[Permission]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines to show, a change as `network: none -> example.com`, and the labels of what changed. Without an old version
    nothing is a change."""
    before = {one.label: one.words for one in old or ()}
    lines, changed = [], []
    for one in new:
        was = before.get(one.label, one.words)
        if was != one.words:
            lines.append(f"{one.label}: {was} -> {one.words}")
            changed.append(one.label)
        elif one.always:
            lines.append(one.line)
    return tuple(lines), tuple(changed)


def _zone_words(zones: Mapping[str, str] | None, *, only_paths: bool) -> str:
    words = ALL_READ_ONLY
    if zones is not None:
        modes = {name: "rw: written" if mode == AccessMode.RW else "read-only" for name, mode in zones.items()}
        words = _join_or_none(f"/{name} ({mode})" for name, mode in modes.items())
    return f"only the paths it is given, of: {words}" if only_paths else words


def _network_words(network: bool | tuple[str, ...]) -> str:
    if isinstance(network, bool):
        return WHOLE_NETWORK if network else NO_PERMISSION
    return _join_or_none(network)


def _join_or_none(words: Iterable[str]) -> str:
    return ", ".join(words) or NO_PERMISSION
