"""Real zones on a real disk, opened both ways."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - who becomes a plain user in a test cannot load it any more
import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.handles import Opener, open_by_kernel, open_by_walk
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import AccessMode, ZoneSpec


@pytest.fixture(params=[open_by_kernel, open_by_walk], ids=["openat2", "walk"])
def opener(request: pytest.FixtureRequest) -> Opener:
    chosen: Opener = request.param
    return chosen


@pytest.fixture
def directories(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("workspace", "scratch", "docs", "outside", "forge_home", "home")}
    for path in made.values():
        path.mkdir()
    return made


@pytest.fixture
def workspace(directories: dict[str, Path]) -> Path:
    return directories["workspace"]


@pytest.fixture
def outside(directories: dict[str, Path]) -> Path:
    return directories["outside"]


@pytest.fixture
def open_zones(directories: dict[str, Path], opener: Opener) -> Callable[..., Sandbox]:
    def opened(*specs: ZoneSpec, default_zone: str | None = None) -> Sandbox:
        return open_sandbox(
            specs, default_zone, forge_home=directories["forge_home"], home=directories["home"], opener=opener
        )

    return opened


@pytest.fixture
def sandbox(directories: dict[str, Path], open_zones: Callable[..., Sandbox]) -> Sandbox:
    """workspace and scratch rw, docs ro."""
    return open_zones(
        ZoneSpec(name="workspace", path=directories["workspace"]),
        ZoneSpec(name="scratch", path=directories["scratch"]),
        ZoneSpec(name="docs", path=directories["docs"], mode=AccessMode.RO),
    )


def _read(sandbox: Sandbox, path: str) -> bytes:
    return files.read_bytes(sandbox.target(path, Verb.READ))


def _write(sandbox: Sandbox, path: str, data: bytes = b"new") -> None:
    files.write_atomic(sandbox.target(path, Verb.WRITE), data)


def _delete(sandbox: Sandbox, path: str) -> None:
    files.delete(sandbox.target(path, Verb.DELETE))


def _list(sandbox: Sandbox, path: str) -> list[str]:
    return [entry.name for entry in files.list_dir(sandbox.target(path, Verb.READ))]


def _info(sandbox: Sandbox, path: str) -> files.FileInfo:
    return files.file_info(sandbox.target(path, Verb.READ))


def _exists(sandbox: Sandbox, path: str) -> bool:
    return sandbox.target(path, Verb.READ).exists


OPERATIONS: dict[str, Callable[..., object]] = {
    "read": _read,
    "write": _write,
    "delete": _delete,
    "list": _list,
    "info": _info,
    "exists": _exists,
}


@pytest.fixture
def do() -> Callable[..., object]:
    """`do("read", sandbox, path)`: one whole operation, judged and run."""

    def operation(name: str, sandbox: Sandbox, *args: object) -> object:
        return OPERATIONS[name](sandbox, *args)

    return operation


Action = Callable[[Path], object]


def open_zone_of(place: Path, opener: Opener) -> Sandbox:
    """`place/zone`, rw, as zone `w`: for actions that run as an ordinary user."""
    (place / "zone").mkdir(exist_ok=True)
    spec = ZoneSpec(name="w", path=place / "zone")
    return open_sandbox([spec], forge_home=place / "f", home=place / "h", opener=opener)


PLAIN_USER = 65534


def in_child(action: Callable[..., object], *arguments: object, plain: bool = True) -> Any:
    """Run an action in a forked child, as an ordinary user if asked, and give back its answer (plain data)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if plain and os.geteuid() == 0:
                os.setgroups([])
                os.setgid(PLAIN_USER)
                os.setuid(PLAIN_USER)
            answer = json.dumps(["ok", action(*arguments)])
        except BaseException:
            answer = json.dumps(["error", traceback.format_exc()])
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    outcome, value = json.loads(answer)
    assert outcome == "ok", value
    return value


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_killed(work: Callable[[], object]) -> bool:
    """Whether a forked child that does this is killed by it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.fixture
def private_place() -> Iterator[Path]:
    """A directory an ordinary user owns, in memory where there is such a disk: races need many tries."""
    import ctypes  # noqa: F401  the child may not be able to read the library's files

    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="forge-", dir=fast)).resolve()
    if os.geteuid() == 0:
        os.chown(place, PLAIN_USER, PLAIN_USER)
    yield place
    for directory, _, _ in os.walk(place):
        os.chmod(directory, 0o700)
    shutil.rmtree(place)


@pytest.fixture
def plain_user(private_place: Path) -> Callable[[Action], object]:
    return lambda action: in_child(action, private_place)


@pytest.fixture(params=["root", "plain user"])
def some_user(private_place: Path, request: pytest.FixtureRequest) -> Callable[[Action], object]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    return lambda action: in_child(action, private_place, plain=request.param == "plain user")
