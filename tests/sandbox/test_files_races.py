"""Someone swaps links and directories as fast as they can while Forge works: nothing outside the zone is touched.

The attacker is a process of the same user that exchanges a file with a link to a canary outside, and a directory with
a link to a directory outside that looks the same, in one atomic step each. The last test shows that the attack works
on code that checks a path first and opens it afterwards.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE
from tests.sandbox.conftest import open_zone_of

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import Opener
from golem_forge.sandbox.sandbox import Sandbox

CANARY = b"canary" * 707
EXCHANGE = 2
SECONDS_EACH = 0.03
LONG_SECONDS_EACH = 0.3
HARMLESS = {"SYMLINK_ESCAPE", "PATH_CHANGED", "NOT_FOUND", "NOT_A_DIRECTORY", "NOT_A_FILE", "IS_A_DIRECTORY"}


def _build(place: Path) -> tuple[Path, Path]:
    zone, outside = place / "zone", place / "outside"
    for root, content in ((zone / "d", b"inside"), (outside, CANARY)):
        (root / "e").mkdir(parents=True)
        (root / "x").write_bytes(content)
        (root / "e/x").write_bytes(content)
    (outside / "canary-marker").touch()
    (zone / "d~").symlink_to(outside)
    (zone / "f").write_bytes(b"inside")
    (zone / "f~").symlink_to(outside / "x")
    return zone, outside


def _snapshot(outside: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for directory, _, names in os.walk(outside):
        found[directory] = os.stat(directory).st_mtime_ns
        for name in names:
            path = os.path.join(directory, name)
            found[path] = (Path(path).read_bytes(), os.stat(path).st_ino, os.stat(path).st_mode)
    return found


def _swap_for_ever(zone: Path, outside: Path) -> None:
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    here = os.open(zone, os.O_RDONLY)
    while True:
        for name, aside in ((b"f", b"f~"), (b"d", b"d~")):
            renameat2(here, name, here, aside, EXCHANGE)
        with suppress(OSError):  # put back what the victim deleted or replaced
            if not os.path.lexists(zone / "f"):
                (zone / "f").write_bytes(b"inside")
            if not (zone / "f").is_symlink() and not (zone / "f~").is_symlink():
                os.unlink(zone / "f~")
                os.symlink(outside / "x", zone / "f~")
            real = zone / ("d~" if (zone / "d").is_symlink() else "d")
            for inner in ("x", "e/x"):
                fd = os.open(real / inner, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW)
                os.write(fd, b"inside")
                os.close(fd)


@contextmanager
def _attacker(zone: Path, outside: Path) -> Iterator[None]:
    child = os.fork()
    if child == 0:
        try:
            _swap_for_ever(zone, outside)
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _read(sandbox: Sandbox, path: str, number: int) -> None:
    assert b"canary" not in files.read_bytes(sandbox.target(path, Verb.READ))


def _write(sandbox: Sandbox, path: str, number: int) -> None:
    path = path if number % 2 else f"{path}-{number % 50}/new"
    files.write_atomic(sandbox.target(path, Verb.WRITE), b"inside, written")


def _delete(sandbox: Sandbox, path: str, number: int) -> None:
    files.delete(sandbox.target(path, Verb.DELETE))


def _list(sandbox: Sandbox, path: str, number: int) -> None:
    names = [entry.name for entry in files.list_dir(sandbox.target(os.path.dirname(path) or ".", Verb.READ))]
    assert "canary-marker" not in names


def _info(sandbox: Sandbox, path: str, number: int) -> None:
    target = sandbox.target(path, Verb.READ)
    assert files.file_info(target).size != len(CANARY)
    target.recheck()


def test_no_race_leads_out_of_the_zone(
    some_user: Callable[[Callable[[Path], object]], object], opener: Opener, is_long: bool
) -> None:
    seconds = LONG_SECONDS_EACH if is_long else SECONDS_EACH

    def attempt(place: Path) -> object:
        zone, outside = _build(place)
        sandbox = open_zone_of(place, opener)
        before = _snapshot(outside)
        counts: dict[str, dict[str, int]] = {}
        with _attacker(zone, outside):
            for operation in (_read, _write, _delete, _list, _info):
                seen = counts[operation.__name__] = {"done": 0}
                began = time.monotonic()
                number = 0
                # On a busy machine the attacker may wait long for its turn.
                while (spent := time.monotonic() - began) < seconds or (spent < PATIENCE and not _met(seen)):
                    number += 1
                    for path in ("f", "d/x", "d/e/x"):
                        try:
                            operation(sandbox, path, number)
                            seen["done"] += 1
                        except SandboxError as error:
                            seen[error.code] = seen.get(error.code, 0) + 1
        return counts, before == _snapshot(outside)

    answer: Any = some_user(attempt)
    counts, untouched = answer
    assert untouched is True
    for seen in counts.values():
        assert _met(seen) and set(seen) - {"done"} <= HARMLESS


def _met(seen: dict[str, int]) -> bool:
    """Whether there were operations that got through, and others that the attacker came between."""
    return 0 < seen["done"] < sum(seen.values())


def test_the_attack_beats_code_that_checks_before_it_opens(
    plain_user: Callable[[Callable[[Path], object]], object],
) -> None:
    def attempt(place: Path) -> object:
        zone, outside = _build(place)
        end = time.monotonic() + PATIENCE
        with _attacker(zone, outside):
            while time.monotonic() < end:
                with suppress(OSError):
                    if not os.path.realpath(zone / "d/x").startswith(f"{zone}/"):
                        continue
                    if b"canary" in (zone / "d/x").read_bytes():
                        return "escaped"
        return "held"

    assert plain_user(attempt) == "escaped"
