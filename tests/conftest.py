"""Every test has a home of its own: nothing reads or writes the real ~/.forge, or sees what else this machine has."""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from . import disks, known_walls, machine, ready
from .deadlines import WHOLE

_numbers = itertools.count()
FEW, MANY = 25, 400
"""Generated examples of a test that says no number of its own: in `make test`, and in `make test-long`."""
pytest_plugins = ["tests.parallel", "tests.ui.web.bench", "tests.ui.web.stage"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the tests of large objects, many rounds or examples alone")


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """`make test-long`: few rounds become many."""
    return bool(request.config.getoption("--long"))


def pytest_configure(config: pytest.Config) -> None:
    _heed_signals()
    _choose_examples(MANY if config.getoption("--long") else FEW)
    if not config.getoption("--long"):
        _read_no_constants()
    disks.need_no_waiting()
    machine.forget_environment()
    gc.disable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """What commands are forked from imports all while the tests are collected."""
    config = session.config
    if config.getoption("--processes") and not config.option.collectonly:
        meeting: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        disks.keep_in_memory(meeting)
        running = contextlib.ExitStack()
        running.enter_context(ready.serving(meeting, known_walls.file_in(meeting)))
        config.add_cleanup(running.close)


def _choose_examples(number: int) -> None:
    """However long each takes."""
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("forge", max_examples=number, deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("forge")


def _read_no_constants() -> None:
    """Hypothesis makes one value in forty of the constants of all imported sources: to read them takes eight seconds of
    each process that makes any value."""
    with contextlib.suppress(ImportError):  # it has no setting for that, and may come to do it elsewhere
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants

        providers._get_local_constants = Constants


def _heed_signals() -> None:
    """A shell has what it starts in the background ignore interrupts, and `nohup` hang-ups; every command that a test
    starts would inherit that, and never end."""
    for number, heeded in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, heeded)


def pytest_runtest_teardown() -> None:
    """A command ignores interrupts once it has its exit code. So does a test that calls the function of one, and the
    next test must not be the one that notices."""
    _heed_signals()


_MARKED = {
    "walls": (
        *("sandbox/walls", "sandbox/git", "sandbox/process", "sandbox/network", "toolsets/exec", "agent/modules"),
        *("usertools/build", "usertools/run", "usertools/test_test", "usertools/test_expectations"),
        *("usertools/test_trust_card",),
    ),
    "foreign": ("mcp", "cli/mcp", "acceptance/test_editors", "agent/model/test_providers_wire_formats"),
    "slow": (
        *("acceptance", "compat", "docs", "invariants", "cli", "ui/terminal", "ui/web", "ui/acp"),
        *("agent/test_agent_config_keys", "toolsets/search", "toolsets/test_output_large"),
        *("toolsets/edit/test_edit_recovery", "tools/test_search", "agent/test_runtime_secrets"),
        *("agent/test_trust_edited_code", "agent/model/test_selection_opening", "usertools/share"),
        *("usertools/test_registry", "usertools/test_folder", "sandbox/test_host", "sandbox/test_files_races"),
    ),
}
"""Marker → the folders and files of tests that have it. Whoever uses a browser is marked `browser`, generated input is
`slow`. `make test-quick` runs the tests without a marker."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that take longest come first: begun last, one of them would run alone while the other processes wait. And
    each process gets a row of tests, so those with a browser share one."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        place = str(item.path).removeprefix(here)
        for name, places in _MARKED.items():
            if place.startswith(places):
                item.add_marker(name)
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker("slow")
            item.add_marker("generated")
    is_wanted = _is_longer_then if config.getoption("--long") else _is_short
    items[:] = sorted(filter(is_wanted, items), key=_length, reverse=True)


def _is_short(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is None


def _is_longer_then(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("long", "generated"))
    return marked or "is_long" in getattr(item, "fixturenames", ())


def _length(item: pytest.Item) -> int:
    if "test_the_demo" in item.nodeid:
        return 2
    return 1 if "browser" in getattr(item, "fixturenames", ()) else 0


def pytest_collection_finish() -> None:
    """What holds for every test is put in place once: for each of thousands, it took as long as many a test.

    And the tests stay as long as the run: looking for rubbish among them again and again finds nothing."""
    machine.forget_model_servers()
    machine.read_rules_at_once()
    machine.answer_for_directories()
    machine.wait_for_commands(WHOLE)
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    homes = tmp_path_factory.getbasetemp() / "homes"
    home = homes / f"home{next(_numbers)}"
    home.mkdir(mode=0o700, parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FORGE_HOME", str(home / ".forge"))
    monkeypatch.delenv(machine.GIT_CONFIG, raising=False)
    return home


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's own, which reads the names of all directories before it makes another: that took longer than most
    tests, once there were thousands. Short, because the name of a socket has 107 bytes."""
    name = re.sub(r"\W", "_", request.node.name)[:16]
    path = tmp_path_factory.getbasetemp() / f"{name}_{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="session")
def tried_walls(meeting: Path) -> Path:
    with machine.alone(meeting):
        return known_walls.tried(meeting)


@pytest.fixture(autouse=True)
def walls_are_known(tried_walls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """See known_walls. Tests of the trying itself replace this by nothing."""
    known_walls.told(tried_walls, monkeypatch.setattr)


@pytest.fixture(scope="session")
def ready_forge(meeting: Path, tried_walls: Path) -> Iterator[ready.ReadyForge]:
    """`ready_forge("log", "verify", cwd=…, env=…)` is `subprocess.run` of `forge log verify`, without its imports; see
    ready."""
    with ready.serving(meeting, tried_walls) as forge:
        yield forge


@pytest.fixture
def without_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no Go: PATH has no program at all, and the package beside Forge is hidden."""
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.delenv("GOROOT", raising=False)
    monkeypatch.setattr("golem_forge.usertools.build.requirements._package_directories", tuple)


class Asked(list[Any]):
    """An approval callback that keeps every request and answers from a list (the last answer repeats)."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self._answers = list(answers) or [{"approved": True}]

    def __call__(self, request: Any) -> Any:
        self.append(request)
        answer = self._answers[min(len(self), len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def asked() -> type[Asked]:
    return Asked


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def make_path(own_home: Path) -> Callable[..., Any]:
    """Builds an Orchestrator over the given tools: `make_path(add, ask=Asked(…))`, or `mode=…` without a callback."""
    from golem_forge.orchestrator.orchestrator import Orchestrator
    from golem_forge.policy.controller import ApprovalController
    from golem_forge.policy.rules.book import RuleBook
    from golem_forge.storage.home import forge_home

    def make(
        *tools: Any, ask: Any = None, mode: str = "", timeout: float | None = None, **options: Any
    ) -> Orchestrator:
        mode = mode or ("interactive" if ask is not None else "auto_deny")
        controller = ApprovalController(mode, ask, timeout=timeout)
        options.setdefault("rules", RuleBook(forge_home()))
        return Orchestrator(tools, approval=controller, **options)

    return make


@pytest.fixture
def wire() -> Any:
    """The server that speaks providers' wire formats: `with wire.WireServer([wire.WireTurn(say="Hi")]) as server`."""
    from .wire import server

    return server
