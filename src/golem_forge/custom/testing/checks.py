"""What a case expects against what was seen. Takes an Expectation and Seen, gives problems, none if all is as expected.

Threats: JSON deeper than the stack, and a link that a tool left in its workspace so that the report would
show a file of the person's (none is followed).
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.custom.manifest import Expectation
from golem_forge.custom.testing.pattern import Search
from golem_forge.custom.testing.report import SHOWN, compact, expected_got, on_one_line, quoted, shortened, text_of
from golem_forge.sandbox.processes.ending import (
    CPU_LIMIT,
    MEMORY_LIMIT,
    OUTPUT_LIMIT,
    PROCESS_LIMIT,
    TIMEOUT,
    Ending,
)

MOST_OUTPUT: Final = 1 << 20
"""Of a case, both streams together; and of a file that is expected."""
_DEEPEST: Final = 100
_LIMITS: Final = {
    MEMORY_LIMIT: "used more memory than it may",
    PROCESS_LIMIT: "started more processes than it may",
    CPU_LIMIT: "used more CPU time than it may",
    OUTPUT_LIMIT: f"printed more than {MOST_OUTPUT >> 20} MiB",
}

Opener = Callable[[tuple[str, ...]], int]
"""Opens a file of the workspace for reading, following no link; raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    ending: Ending
    timeout: float
    """That it was given."""
    stdout: bytes
    stderr: bytes
    searched: Search
    """For `stdout_matches`, if there is one."""
    open: Opener

    @property
    def exit_code(self) -> int | None:
        """As a shell has it: 128+n for signal n."""
        ended = self.ending
        return 128 + ended.signal if ended.signal is not None else ended.exit_code


def inside(name: str) -> tuple[str, ...]:
    """The components of a name that leads nowhere but below the workspace; empty for any other."""
    parts = tuple(name.split("/"))
    return () if "\0" in name or any(part in ("", ".", "..") for part in parts) else parts


def ended_as_expected(expect: Expectation, seen: Seen) -> bool:
    return not seen.ending.code and seen.exit_code == expect.exit_code


def problems(expect: Expectation, seen: Seen) -> tuple[str, ...]:
    if seen.ending.code == TIMEOUT:
        return (f"timed out after {seen.timeout:g} seconds{_said(seen.stderr)}",)
    if seen.ending.code:
        return (_LIMITS.get(seen.ending.code, f"was ended ({seen.ending.code})"),)
    return (
        *_exit_problems(expect, seen),
        *_stdout_problems(expect, seen),
        *(
            f"stderr: expected to contain {quoted(part)}, got {quoted(text_of(seen.stderr))}"
            for part in expect.stderr_contains
            if _bytes(part) not in seen.stderr
        ),
        *(_json_problems(expect.json, seen.stdout) if expect.has_json else ()),
        *(problem for name, text in expect.files.items() for problem in _file_problems(name, text, seen.open)),
    )


def _exit_problems(expect: Expectation, seen: Seen) -> Iterator[str]:
    if seen.exit_code != expect.exit_code:
        by = f" ({_signal_name(seen.ending.signal)})" if seen.ending.signal is not None else ""
        got = "none" if seen.exit_code is None else seen.exit_code
        # The reason stands on standard error, unless somebody looked there already.
        why = "" if expect.stderr_contains else _said(seen.stderr)
        yield f"exit_code: expected {expect.exit_code}, got {got}{by}{why}"


def _stdout_problems(expect: Expectation, seen: Seen) -> Iterator[str]:
    text = text_of(seen.stdout)
    if expect.stdout is not None and _bytes(expect.stdout) != seen.stdout:
        yield f"stdout: {expected_got(expect.stdout, text)}"
    for part in expect.stdout_contains:
        if _bytes(part) not in seen.stdout:
            yield f"stdout: expected to contain {quoted(part)}, got {quoted(text)}"
    if expect.stdout_matches is not None and seen.searched is not Search.FOUND:
        slow = seen.searched is Search.GIVEN_UP
        got = "but the pattern takes too long on this text; use a simpler one" if slow else f"got {quoted(text)}"
        yield f"stdout: expected to match {quoted(expect.stdout_matches)}, {got}"


def _json_problems(expected: Any, data: bytes) -> Iterator[str]:
    said = quoted(text_of(data))
    try:
        found = _unequal(expected, json.loads(data.decode(), parse_constant=_refused), "", 0)
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
            yield f"json: {where and f'{shortened(on_one_line(where), SHOWN)}: '}expected {one}, got {other}"


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _unequal(expected: Any, got: Any, where: str, depth: int) -> tuple[str, str, str] | None:
    """The first place where two values differ, and what stands there. A number equals one of another spelling; true
    and 1 are different values."""
    if depth > _DEEPEST:
        return where, "what is nested less deeply", "more"
    if isinstance(expected, dict) and isinstance(got, dict):
        for name, value in expected.items():
            place = f"{where}.{name}" if where else str(name)
            if name not in got:
                return place, compact(value), "nothing"
            if (found := _unequal(value, got[name], place, depth + 1)) is not None:
                return found
        for name in got:
            if name not in expected:
                return f"{where}.{name}" if where else name, "nothing", compact(got[name])
        return None
    if isinstance(expected, (list, tuple)) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            if (found := _unequal(one, other, f"{where}[{index}]", depth + 1)) is not None:
                return found
        if len(expected) != len(got):
            return where, f"{len(expected)} items", str(len(got))
        return None
    same_kind = isinstance(expected, bool) == isinstance(got, bool)
    return None if same_kind and expected == got else (where, compact(expected), compact(got))


def _file_problems(name: str, expected: str, opener: Opener) -> Iterator[str]:
    if not (parts := inside(name)):
        yield f"files: {quoted(name)} is no name of a file below the workspace"
        return
    try:
        descriptor = opener(parts)
    except FileNotFoundError:
        yield f"files: {quoted(name)} was not written"
        return
    except OSError as error:
        yield f"files: {quoted(name)} cannot be read ({error.strerror or 'refused'})"
        return
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        yield f"files: {quoted(name)} is not a regular file"
        return
    with open(descriptor, "rb") as file:
        data = file.read(MOST_OUTPUT + 1)
    if len(data) > MOST_OUTPUT:
        yield f"files: {quoted(name)} has more than {MOST_OUTPUT >> 20} MiB"
    elif data != _bytes(expected):
        yield f"files: {quoted(name)}: {expected_got(expected, text_of(data))}"


def _said(stderr: bytes) -> str:
    """The end of it, where programs give their reason."""
    text = text_of(stderr).strip()
    return f", stderr {quoted(text[-200:])}" if text else ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
