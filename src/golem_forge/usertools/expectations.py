"""What a test case expects against what its run gave, how that is reported, and expected output that is updated.

`find_problems` takes an Expectation and a CaseRun. Threats: JSON deeper than the stack, and a link that a tool left in
its workspace so that the report would show a file of the person's (none is followed). The report has one line a case,
values as JSON strings, long ones cut around the first difference; bounded, and it cannot steer a terminal or a model.

`search_pattern` runs `stdout_matches` with little memory and a fixed time: pattern and text both come from the tool.

`update_golden` (`forge tools test --update`) rewrites `expect.stdout` of the cases that have one, or that expect
nothing at all, and no other byte of `tool.yaml`. A case that did not end as expected is not updated. Raises ForgeError
if the file is no longer the one that was tested, or if the new one would not read back as the old one with these texts
in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.json import strict_json
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import display_name, duration, escape_control_chars, shorten
from golem_forge.sandbox.process import monitor
from golem_forge.storage.home import DIRECTORY_FLAGS, READ_FLAGS, ForgeHome, create_private
from golem_forge.tools.pattern_search import PatternLimits, PatternTooCostly, search_in_child
from golem_forge.usertools.diagnostics import Unusable
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.manifest import MANIFEST_FILE, Expectation, ToolManifest
from golem_forge.usertools.manifest.tool_yaml import have_expectations, read_manifest, set_expected_stdout
from golem_forge.usertools.run.output import shell_exit_code, signal_name

MOST_OUTPUT: Final = 1 << 20
"""Maximum bytes of both streams of a case, and of an expected file."""
_DEEPEST: Final = 100
_LIMITS: Final = {
    monitor.MEMORY_LIMIT: "used more memory than it may",
    monitor.PROCESS_LIMIT: "started more processes than it may",
    monitor.CPU_LIMIT: "used more CPU time than it may",
    monitor.OUTPUT_LIMIT: f"printed more than {MOST_OUTPUT >> 20} MiB",
}

OpenFile = Callable[[tuple[str, ...]], int]
"""Opens a file of the workspace for reading, following no link; raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    ending: monitor.ExitStatus
    timeout: float
    """The timeout that the case had."""
    stdout: bytes
    stderr: bytes
    searched: PatternResult
    """The result for `stdout_matches`, if there is one."""
    open: OpenFile

    @property
    def exit_code(self) -> int | None:
        return shell_exit_code(self.ending)


def workspace_parts(name: str) -> tuple[str, ...]:
    """The components of a name that leads nowhere but below the workspace; empty for any other."""
    parts = tuple(name.split("/"))
    return () if "\0" in name or any(part in ("", ".", "..") for part in parts) else parts


def ended_as_expected(expect: Expectation, seen: CaseRun) -> bool:
    return not seen.ending.code and seen.exit_code == expect.exit_code


def find_problems(expect: Expectation, seen: CaseRun) -> tuple[str, ...]:
    if seen.ending.code == monitor.TIMEOUT:
        return (f"timed out after {seen.timeout:g} seconds{_stderr_tail(seen.stderr)}",)
    if seen.ending.code:
        return (_LIMITS.get(seen.ending.code, f"was ended ({seen.ending.code})"),)
    return (
        *_exit_problems(expect, seen),
        *_stdout_problems(expect, seen),
        *(
            f"stderr: expected to contain {quote_value(part)}, got {quote_value(text_of(seen.stderr))}"
            for part in expect.stderr_contains
            if _encode(part) not in seen.stderr
        ),
        *(_json_problems(expect.json, seen.stdout) if expect.has_json else ()),
        *(
            f"files: {quote_value(name)}{problem}"
            for name, text in expect.files.items()
            if (problem := _file_problem(name, text, seen.open))
        ),
    )


def _exit_problems(expect: Expectation, seen: CaseRun) -> Iterator[str]:
    if seen.exit_code != expect.exit_code:
        by = f" ({signal_name(seen.ending.signal)})" if seen.ending.signal is not None else ""
        got = "none" if seen.exit_code is None else seen.exit_code
        # The reason stands on standard error, unless somebody looked there already.
        why = "" if expect.stderr_contains else _stderr_tail(seen.stderr)
        yield f"exit_code: expected {expect.exit_code}, got {got}{by}{why}"


def _stdout_problems(expect: Expectation, seen: CaseRun) -> Iterator[str]:
    text = text_of(seen.stdout)
    if expect.stdout is not None and _encode(expect.stdout) != seen.stdout:
        yield f"stdout: {expected_got(expect.stdout, text)}"
    for part in expect.stdout_contains:
        if _encode(part) not in seen.stdout:
            yield f"stdout: expected to contain {quote_value(part)}, got {quote_value(text)}"
    if expect.stdout_matches is not None and seen.searched is not PatternResult.FOUND:
        slow = seen.searched is PatternResult.GIVEN_UP
        got = "but the pattern takes too long on this text; use a simpler one" if slow else f"got {quote_value(text)}"
        yield f"stdout: expected to match {quote_value(expect.stdout_matches)}, {got}"


def _json_problems(expected: Any, data: bytes) -> Iterator[str]:
    said = quote_value(text_of(data))
    try:
        found = _first_mismatch(expected, strict_json(data.decode()), "", 0)
    except RecursionError:
        yield "json: stdout is nested too deeply"
    except UnicodeDecodeError:
        yield f"json: stdout is not UTF-8 text, got {said}"
    except json.JSONDecodeError as error:
        yield f"json: stdout is not JSON (line {error.lineno}, column {error.colno}: {error.msg}), got {said}"
    except ValueError as error:
        yield f"json: stdout is not JSON ({error}), got {said}"
    else:
        if found is not None:
            where, one, other = found
            place = f"{shorten(display_name(where), SHOWN_CHARACTERS)}: " if where else ""
            yield f"json: {place}expected {one}, got {other}"


def _first_mismatch(expected: Any, got: Any, where: str, depth: int) -> tuple[str, str, str] | None:
    """The first place where two values differ, and what stands there. A number equals one of another spelling; true
    and 1 are different values."""
    if depth > _DEEPEST:
        return where, "what is nested less deeply", "more"
    if isinstance(expected, dict) and isinstance(got, dict):
        for name, value in expected.items():
            place = f"{where}.{name}" if where else str(name)
            if name not in got:
                return place, compact(value), "nothing"
            if (found := _first_mismatch(value, got[name], place, depth + 1)) is not None:
                return found
        for name in got:
            if name not in expected:
                return f"{where}.{name}" if where else name, "nothing", compact(got[name])
        return None
    if isinstance(expected, (list, tuple)) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            if (found := _first_mismatch(one, other, f"{where}[{index}]", depth + 1)) is not None:
                return found
        if len(expected) != len(got):
            return where, f"{len(expected)} items", str(len(got))
        return None
    same_kind = isinstance(expected, bool) == isinstance(got, bool)
    return None if same_kind and expected == got else (where, compact(expected), compact(got))


def _file_problem(name: str, expected: str, opener: OpenFile) -> str:
    if not (parts := workspace_parts(name)):
        return " is not the name of a file below the workspace"
    try:
        descriptor = opener(parts)
    except FileNotFoundError:
        return " was not written"
    except OSError as error:
        return f" cannot be read ({error.strerror or 'refused'})"
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return " is not a regular file"
    with open(descriptor, "rb") as file:
        data = file.read(MOST_OUTPUT + 1)
    if len(data) > MOST_OUTPUT:
        return f" has more than {MOST_OUTPUT >> 20} MiB"
    return "" if data == _encode(expected) else f": {expected_got(expected, text_of(data))}"


def _stderr_tail(stderr: bytes) -> str:
    """The end of it, where programs give their reason."""
    text = text_of(stderr).strip()
    return f", stderr {quote_value(text[-200:])}" if text else ""


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


SHOWN_CHARACTERS: Final = 240
"""Maximum characters of a value that is shown whole."""
_SHOWN_BEFORE: Final = 60
_LONGEST_NAME: Final = 100
_MOST_PROBLEMS: Final = 8
_LONGEST_LINE: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    name: str
    ok: bool
    duration_ms: int
    problems: tuple[str, ...] = ()
    stdout: str | None = None
    """The output, if it is text and complete; None otherwise, or if nothing was run."""
    as_expected: bool = False
    """Whether it ended by itself with the expected exit code, so that its output can become the expectation."""

    @property
    def line(self) -> str:
        """Returns `ok greets (12 ms)` or `FAIL greets: …`."""
        if self.ok:
            return f"ok {self.name} ({duration(self.duration_ms)})"
        shown = self.problems[:_MOST_PROBLEMS]
        if left := len(self.problems) - len(shown):
            shown = (*shown, f"and {left} more")
        return shorten(f"FAIL {self.name}: {'; '.join(shown)}", _LONGEST_LINE)


def failed_tests_text(tool: str, results: Sequence[CaseResult]) -> str:
    """Describes the results of a tool with at least one failed case."""
    failed = sum(1 for one in results if not one.ok)
    return "\n".join(
        (f"custom tool '{tool}' failed its tests: {failed} of {len(results)}", *(one.line for one in results))
    )


def case_name(name: str, index: int) -> str:
    """Returns the name of a case; `index` counts from 0, people from 1."""
    return shorten(display_name(name), _LONGEST_NAME) if name.strip() else f"test {index + 1}"


def quote_value(text: str) -> str:
    """A text as a JSON string on one line, its beginning if it is long."""
    cut = f"… ({len(text)} characters)" if len(text) > SHOWN_CHARACTERS else ""
    return _json_quoted(text[:SHOWN_CHARACTERS]) + cut


def expected_got(expected: str, got: str) -> str:
    """`expected "a", got "b"`: two texts that differ."""
    if len(expected) <= SHOWN_CHARACTERS and len(got) <= SHOWN_CHARACTERS:
        return f"expected {_json_quoted(expected)}, got {_json_quoted(got)}"
    at = first_difference(expected, got)
    lengths = f"first difference at character {at + 1}; {len(expected)} and {len(got)} characters"
    return f"expected {_quote_around(expected, at)}, got {_quote_around(got, at)} ({lengths})"


def compact(value: Any) -> str:
    """A JSON value on one line, its beginning if it is long."""
    return shorten(display_name(json.dumps(value, ensure_ascii=False, separators=(",", ":"))), SHOWN_CHARACTERS)


def text_of(data: bytes) -> str:
    """Bytes that are no UTF-8 are shown as escapes."""
    return data.decode("utf-8", "backslashreplace")


def first_difference(one: str, other: str) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _quote_around(text: str, at: int) -> str:
    start = max(0, at - _SHOWN_BEFORE)
    end = start + SHOWN_CHARACTERS
    return f"{'…' if start else ''}{_json_quoted(text[start:end])}{'…' if end < len(text) else ''}"


def _json_quoted(text: str) -> str:
    return escape_control_chars(json.dumps(text, ensure_ascii=False))


PATTERN_SECONDS: Final = 3
_PATTERN_MEMORY: Final = 512 << 20


class PatternResult(Enum):
    FOUND = auto()
    NOT_FOUND = auto()
    GIVEN_UP = auto()


async def search_pattern(pattern: str, text: str) -> PatternResult:
    """Searches as `re.search` does: `$` also matches before the last line end."""
    found: list[list[Any]] = []
    try:
        order = {"pattern": pattern, "text": text}
        await search_in_child(order, PatternLimits(PATTERN_SECONDS, _PATTERN_MEMORY), found.append)
    except (TimeoutError, PatternTooCostly):
        return PatternResult.GIVEN_UP
    return PatternResult.FOUND if found else PatternResult.NOT_FOUND


_BOM: Final = b"\xef\xbb\xbf"
_LARGEST_MANIFEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenUpdate:
    data: bytes
    """The new `tool.yaml`; the old one if nothing changed."""
    updated: tuple[str, ...] = ()
    """Names of the cases whose expectation is another now."""
    refused: tuple[str, ...] = ()
    """`greets: not updated: timed out after 10 seconds`."""


def golden_manifest(data: bytes, manifest: ToolManifest, results: Sequence[CaseResult]) -> GoldenUpdate:
    """`manifest`: what `data` says. Raises ForgeError."""
    text = data.decode("utf-8-sig")
    printed: dict[int, str] = {}
    refused = []
    says_something = have_expectations(text)
    for index, (case, result) in enumerate(zip(manifest.tests, results, strict=True)):
        if case.expect.stdout is None and says_something[index]:
            continue
        if not result.as_expected:
            refused.append(f"{result.name}: not updated: {result.problems[0]}")
        elif result.stdout is None:
            refused.append(f"{result.name}: not updated: what it printed is not UTF-8 text")
        elif result.stdout != case.expect.stdout:
            printed[index] = result.stdout
    if not printed:
        return GoldenUpdate(data=data, refused=tuple(refused))
    try:
        new = set_expected_stdout(text, printed).encode()
    except (LookupError, ValueError):
        raise _not_editable() from None
    new = _BOM + new if data.startswith(_BOM) else new
    _must_read_back(new, manifest, printed)
    return GoldenUpdate(data=new, updated=tuple(results[index].name for index in printed), refused=tuple(refused))


def update_golden(home: ForgeHome, entry: ToolEntry, results: Sequence[CaseResult]) -> GoldenUpdate:
    """Updates the file in the tool's folder. Afterwards the folder is another version, which needs trust again."""
    with contextlib.ExitStack() as opened:
        tools = os.open(home.path / "tools", DIRECTORY_FLAGS)
        opened.callback(os.close, tools)
        try:
            folder = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=tools)
            opened.callback(os.close, folder)
            data = _read_manifest_file(folder)
            known = next((fact.sha256 for fact in entry.files if fact.path == MANIFEST_FILE), "")
            if hashlib.sha256(data).hexdigest() != known:
                raise _changed_meanwhile()
            made = golden_manifest(data, entry.manifest, results)
            if made.data != data:
                _replace_manifest(made.data, tools, folder, data)
            return made
        except OSError as error:
            raise ForgeError(f"tool.yaml of '{entry.name}' could not be updated: {error.strerror}") from None


def _read_manifest_file(folder: int) -> bytes:
    with open(os.open(MANIFEST_FILE, READ_FLAGS, dir_fd=folder), "rb") as file:
        return file.read(_LARGEST_MANIFEST + 1)


def _replace_manifest(data: bytes, tools: int, folder: int, old: bytes) -> None:
    """Whole or not at all. The unfinished file lies beside the folders, where no tool is looked for: in the folder it
    would be a part of the tool."""
    unfinished = f".new-{secrets.token_hex(8)}"
    try:
        with create_private(unfinished, dir_fd=tools) as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), os.stat(MANIFEST_FILE, dir_fd=folder, follow_symlinks=False).st_mode & 0o777)
            os.fsync(file.fileno())
        if _read_manifest_file(folder) != old:
            raise _changed_meanwhile()
        os.rename(unfinished, MANIFEST_FILE, src_dir_fd=tools, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=tools)


def _must_read_back(data: bytes, old: ToolManifest, printed: Mapping[int, str]) -> None:
    tests = tuple(
        replace(case, expect=replace(case.expect, stdout=printed[index])) if index in printed else case
        for index, case in enumerate(old.tests)
    )
    try:
        same = read_manifest(data, folder=old.name) == replace(old, tests=tests)
    except Unusable as error:
        raise ForgeError(f"the expected output cannot be kept in tool.yaml: {error.message}") from None
    if not same:
        raise _not_editable()


def _not_editable() -> ForgeError:
    return ForgeError("Forge cannot edit this tool.yaml; write the expected output into it by hand")


def _changed_meanwhile() -> ForgeError:
    return ForgeError("tool.yaml changed while its tests ran; run them again")
