"""`pytest --processes N`: the tests run in N processes, forked from the one that has imported and collected them all.

Eight processes that import and collect for themselves took as long as a thousand tests. The first process runs nothing:
it deals out the tests, in rows that follow each other in the list, and writes down the reports. A process that has none
left takes half of the longest row. One that dies fails the test it was at, and another takes its place.

Each process has one test more than the one it runs, because pytest sets up and takes down what tests share by looking
at the next one.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest

from . import warm

_AHEAD = 2
"""Tests that a process has: the one it runs, and the next."""
_MEETING = pytest.StashKey[Path]()
"""The directory of the whole run; each process has its own below it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, metavar="N", help="run the tests in so many processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = min(session.config.getoption("--processes"), len(session.items))
    stops = session.testsfailed and not session.config.option.continue_on_collection_errors
    if count < 2 or stops or session.config.option.collectonly:
        return None  # pytest does it alone
    warm.warm_up()
    gc.freeze()
    _Run(session, count).all()
    return True


@pytest.fixture(scope="session")
def meeting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this run have, for what one of them makes for all; see `machine.alone`."""
    return request.config.stash.get(_MEETING, tmp_path_factory.getbasetemp())


class _Worker:
    """A process that runs tests, as the first process sees it."""

    def __init__(self, name: str, process: int, wire: Connection) -> None:
        self.name, self.process, self.wire = name, process, wire
        self.has: deque[int] = deque()
        """What it runs, and what it runs next."""
        self.knows_its_last = False


class _Run:
    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._config = session.config
        self._workers: dict[Connection, _Worker] = {}
        self._names = 0
        size = len(session.items)
        ends = [size * n // count for n in range(count + 1)]
        self._rows = [deque(range(begin, end)) for begin, end in itertools.pairwise(ends)]
        self._row_of: dict[_Worker, deque[int]] = {}

    def all(self) -> None:
        try:
            for row in self._rows:
                self._start(row)
            while self._workers:
                for wire in wait(list(self._workers)):
                    self._hear(self._workers[wire])  # type: ignore[index]
        finally:
            for worker in self._workers.values():
                worker.wire.close()  # it ends after the test it is at
            for worker in self._workers.values():
                os.waitpid(worker.process, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _start(self, row: deque[int]) -> None:
        ours, theirs = Pipe()
        self._names += 1
        name = f"p{self._names}"
        process = os.fork()
        if not process:
            ours.close()
            for worker in self._workers.values():
                worker.wire.close()
            _work(self._session, name, theirs)
        theirs.close()
        worker = self._workers[ours] = _Worker(name, process, ours)
        self._row_of[worker] = row
        self._deal(worker)

    def _deal(self, worker: _Worker) -> None:
        while len(worker.has) < _AHEAD and not worker.knows_its_last:
            number = self._next(worker)
            if number is None:
                worker.knows_its_last = True
            else:
                worker.has.append(number)
            with contextlib.suppress(OSError):  # it is dead, which is heard next
                worker.wire.send(number)

    def _next(self, worker: _Worker) -> int | None:
        if self._session.shouldfail or self._session.shouldstop:
            return None
        row = self._row_of[worker]
        if not row:
            longest = max(self._row_of.values(), key=len)
            for _ in range((len(longest) + 1) // 2):
                row.appendleft(longest.pop())
        return row.popleft() if row else None

    def _hear(self, worker: _Worker) -> None:
        hook = self._config.hook
        kind, said = _received(worker.wire)
        if kind == "end":
            self._has_ended(worker)
        elif kind == "start":
            hook.pytest_runtest_logstart(nodeid=said[0], location=said[1])
        elif kind == "report":
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=self._config, data=said))
        elif kind == "warning":
            message, when, nodeid, location = said
            hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            )
        elif kind == "finish":
            hook.pytest_runtest_logfinish(nodeid=said[0], location=said[1])
            worker.has.popleft()
            self._deal(worker)

    def _has_ended(self, worker: _Worker) -> None:
        del self._workers[worker.wire]
        row = self._row_of.pop(worker)
        _, status = os.waitpid(worker.process, 0)
        code = os.waitstatus_to_exitcode(status)
        if not worker.has:
            if code:
                raise RuntimeError(f"the process {worker.name} of the tests ended with {code} after its last test")
            return
        self._say_it_died(worker, self._session.items[worker.has.popleft()], code)
        row.extendleft(reversed(worker.has))
        self._start(row)

    def _say_it_died(self, worker: _Worker, item: pytest.Item, code: int) -> None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            dict.fromkeys(item.keywords, 1),
            "failed",
            f"the process {worker.name} of the tests ended with {how} during this test",
            "call",
        )
        self._config.hook.pytest_runtest_logreport(report=report)


def _received(wire: Connection) -> Any:
    try:
        return wire.recv()
    except (EOFError, OSError):
        return "end", None


class _Teller:
    """In a process that runs tests: what pytest says there is told to the first process."""

    def __init__(self, config: pytest.Config, wire: Connection) -> None:
        self._config = config
        self._wire = wire

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._wire.send(("start", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._wire.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        category = warning_message.category
        if category.__module__ != "builtins":  # the first process may not know it
            category = next(each for each in category.__mro__ if each.__module__ == "builtins")
        plain = warnings.WarningMessage(
            str(warning_message.message), category, warning_message.filename, warning_message.lineno
        )
        self._wire.send(("warning", (plain, when, nodeid, location)))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._wire.send(("finish", (nodeid, location)))


def _work(session: pytest.Session, name: str, wire: Connection) -> None:
    """The whole life of such a process."""
    code = 1
    try:
        _settle(session.config, name, wire)
        for item, following in _pairs(session, wire):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        code = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):  # the person or the first process stops
        session._setupstate.teardown_exact(None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _settle(config: pytest.Config, name: str, wire: Connection) -> None:
    plugins = config.pluginmanager
    _capture_into_own_files(plugins.getplugin("capturemanager"))
    plugins.unregister(name="terminalreporter")
    plugins.register(_Teller(config, wire), "teller")
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    meeting = config.stash[_MEETING] = factory.getbasetemp()
    factory._basetemp = meeting / name
    factory._basetemp.mkdir(mode=0o700)


def _capture_into_own_files(capture: Any) -> None:
    """In the place of the first process's, and under the same names: a library may have kept `sys.stderr`."""
    capture.read_global_capture()
    capture.suspend_global_capture()
    for stream in (capture._global_capturing.out, capture._global_capturing.err):
        if stream is not None:
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())
    capture.resume_global_capture()


def _pairs(session: pytest.Session, wire: Connection) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """A test, and the one after it."""
    number = wire.recv()
    while number is not None:
        following = wire.recv()
        yield session.items[number], None if following is None else session.items[following]
        number = following
