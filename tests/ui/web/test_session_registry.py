"""Sessions that `forge web` runs itself: started, asked for trust, resumed, ended, and refused as at a terminal."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.ui.web.bench import until

from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.journal_files import is_locked, journal_path
from golem_forge.events.journal_records import events_after
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.session_registry import SessionLauncher, SessionRegistry, StartRequest
from golem_forge.ui.web.stream.socket import take_action
from golem_forge.ui.web.stream.watched_session import SessionStatus

SCRIPT = "turns:\n" + 4 * "  - {say: Hello there.}\n"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[SessionLauncher]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "words.yaml").write_text(SCRIPT)
    own = SessionLauncher(ForgeHome(tmp_path / "home"), tmp_path)
    yield own
    await own.close()


def wish(**more: Any) -> StartRequest:
    return StartRequest(**{"directory": "project", "model": "scripted:words.yaml", **more})


def said(own: SessionLauncher, id: str) -> list[str]:
    events = events_after(journal_path(own.home.path, id))
    return [event.wire["message"]["content"] for event in events if event.type == "message"]


async def test_a_session_is_started_answers_ends_and_is_resumed(own: SessionLauncher) -> None:
    id = await own.start(wish(input="Hi"))
    assert own.current == id and own.live(id).state is SessionStatus.LIVE
    await until(lambda: said(own, id) == ["Hi", "Hello there."])
    await own.end(id)
    assert own.live_sessions() == () and not is_locked(journal_path(own.home.path, id))
    closed = await own.find(id)
    assert closed.state is SessionStatus.CLOSED
    with pytest.raises(ApiRefusal, match="you can only read it here") as refused:
        own.live(id)
    assert refused.value.status == 409
    assert await own.start(StartRequest(resume=id, input="Again")) == id
    await until(lambda: said(own, id)[2:] == ["Again", "Hello there."])
    assert await own.start(StartRequest(resume=id)) == id  # it runs here already: the page goes there


async def test_the_question_whether_to_trust_is_there_to_be_answered(own: SessionLauncher) -> None:
    program = own.directory / "project"
    (program / "forge.yaml").write_text("entry: main.worker\n")
    (program / "tools.py").write_text('def one() -> str:\n    """One."""\n    return "1"\n')
    toolsets = "toolsets: {custom: {module: ./tools.py, tools: [one]}}"
    (program / "main.worker").write_text(f"---\nname: main\n{toolsets}\n---\nHi\n")
    id = await own.start(wish())
    session = own.live(id)
    [question] = session.open_questions()
    assert question.wire["type"] == "trust"
    session.bus.emit("approvalResponse", {"requestId": question.wire["requestId"], "approved": True}, source="browser")
    await until(lambda: session.audience.standing.last("sessionStarted") is not None)
    assert "one" in {tool.name for tool in session.runtime.get_tools()}  # type: ignore[union-attr]


async def test_what_cannot_be_started_is_refused_and_leaves_nothing(own: SessionLauncher) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        await own.start(wish(directory="nowhere"))
    with pytest.raises(ForgeError):
        await own.start(StartRequest(resume="nothere"))
    assert own.live_sessions() == () and own._running == {}


async def test_a_page_of_one_session_starts_no_other(tmp_path: Path) -> None:
    house = SessionRegistry(ForgeHome(tmp_path / "home"), tmp_path)
    assert not house.may_start
    with pytest.raises(ApiRefusal, match="`forge web` serves a page that starts"):
        await house.start(StartRequest())
    for id in ("nothere", "../../etc/passwd", ""):
        with pytest.raises(ApiRefusal) as refused:
            await house.find(id)
        assert refused.value.status == 404


async def test_a_start_that_fails_after_its_question_says_why_on_the_page(
    own: SessionLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked for it has had the answer already, and nobody looks at the terminal."""
    program = own.directory / "project"
    (program / "forge.yaml").write_text("approval: {tools: {exec_command: preApproved}}\n")
    session = own.live(await own.start(wish()))
    heard: list[Any] = []
    session.bus.on("*", heard.append)
    [question] = session.open_questions()
    with pytest.raises(ApiRefusal, match="just being started"):
        take_action(session, "command", {"requestId": "r", "text": "/status"})
    take_action(session, "approvalResponse", {"requestId": question.wire["requestId"], "approved": True})
    await until(lambda: own.live_sessions() == ())
    [told] = [event.wire for event in heard if event.type == "status"]
    assert told["type"] == "error" and "preApproved has no effect" in told["message"]
    [ended] = [event.wire for event in heard if event.type == "sessionEnd"]
    assert ended["reason"] == "error"
    gc.collect()
    assert "never retrieved" not in caplog.text
