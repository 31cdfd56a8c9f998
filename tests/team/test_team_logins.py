"""Logins of a team's page that outlive its process: `forge web --team`, ended and started again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer
from tests.ready import ReadyForge
from tests.ui.web.bench import browsing
from websockets.exceptions import ConnectionClosed, InvalidStatus

from golem_forge.net.server_guard import secret_hash
from golem_forge.storage.home import ForgeHome
from golem_forge.team.people import Role
from golem_forge.ui.web.team import TeamLogin

from .background import TeamPage

DAY = 86_400.0


@pytest.fixture
def page(tmp_path: Path, ready_forge: ReadyForge) -> Iterator[TeamPage]:
    made = TeamPage(tmp_path, "sqlite", ready_forge)
    yield made
    made.close()


def test_a_login_outlives_a_restart_and_ends_as_before(page: TeamPage) -> None:
    tokens = {name: page.add(name, Role.OPERATOR) for name in ("ada", "bob", "eve")}
    cookies = {name: page.log_in(token) for name, token in tokens.items()}
    second = page.log_in(tokens["ada"])
    session = page.program.queue()
    page.restart()
    assert [page.person(each) for each in (*cookies.values(), second)] == ["ada", "bob", "eve", "ada"]
    # logged out stays logged out, also where the process is killed right after
    assert page.ask("/api/logout", cookies["bob"], {})[0] == 204
    page.restart(kill=True)
    assert page.person(cookies["bob"]) == ""
    # removed: at once, with open sockets
    with page.stream(session, cookies["ada"]) as stream:
        assert json.loads(stream.recv(PATIENCE))["kind"] == "hello"
        page.program.forge("people", "remove", "ada")
        assert [page.person(each) for each in (cookies["ada"], second)] == ["", ""]
        with pytest.raises(ConnectionClosed) as closed:
            list(iter(lambda: stream.recv(PATIENCE), None))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    # removed while no server ran; the same name again is another token
    page.stop()
    page.program.forge("people", "remove", "eve")
    page.add("eve", Role.ADMIN)
    page.start()
    assert page.person(cookies["eve"]) == ""
    with pytest.raises(InvalidStatus, match="401"):
        page.stream(session, cookies["eve"])


@pytest.mark.long
@browsing
async def test_an_open_page_goes_on_after_a_restart(tmp_path: Path, ready_forge: ReadyForge, windows: Any) -> None:
    page = TeamPage(tmp_path, "sqlite", ready_forge)
    try:
        window = await windows()
        window.expects("ERR_CONNECTION_REFUSED", "Failed to fetch")
        await window.open(f"http://127.0.0.1:{page.port}/#code={page.add('ada', Role.ADMIN)}")
        await window.page.get_by_role("link", name="Team").click()
        await window.sees("No schedule yet.")
        page.program.forge("schedule", "add", "@daily", "Tidy up", "--name", "tidy")
        await window.sees("No runner runs now, so nothing starts.")
        await window.sees("Tidy up")
        page.stop()
        await window.sees(re.compile("does not answer|could not be"))
        page.start()
        await window.sees_not(re.compile("does not answer|could not be"))
        await window.sees("Tidy up")
        assert await window.page.get_by_text("Tidy up").first.is_visible()
        await window.page.reload()
        await window.sees("ada · admin")
    finally:
        page.close()


def _ends_in(page: TeamPage, seconds: float, row: dict[str, Any]) -> None:
    row["until"] = page.program.store().now() + seconds


def test_a_login_ends_after_its_time_with_its_socket(page: TeamPage) -> None:
    session, token = page.program.queue(), page.add("ada")
    for seconds in ever_longer(4):
        cookie = page.log_in(token)
        page.stop()
        kept = json.loads(page.file.read_text())["logins"][-1]
        assert kept["until"] == pytest.approx(page.program.store().now() + DAY / 2, abs=60)
        page.rewrite(partial(_ends_in, page, seconds))
        page.start()
        with contextlib.suppress(InvalidStatus):  # the page took longer than that to start
            opened = page.stream(session, cookie)
            break
    with opened as stream:
        assert json.loads(stream.recv(PATIENCE))["kind"] == "hello"
        with pytest.raises(ConnectionClosed) as closed:
            list(iter(lambda: stream.recv(PATIENCE), None))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    assert page.person(cookie) == ""
    page.restart()
    assert page.person(cookie) == ""


def test_nothing_that_is_kept_lets_anybody_in(page: TeamPage) -> None:
    token = page.add("ada", Role.ADMIN)
    cookie = page.log_in(token)
    name, _, value = cookie.partition("=")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (page.file, page.file.parent)] == [0o600, 0o700]
    text = page.file.read_text()
    assert value not in text
    assert token not in text
    [kept] = json.loads(text)["logins"]
    page.restart()
    hashes = [each["token"] for each in page.program.store().accounts.people()]  # all that a runner's role can read
    for known in (kept["cookie"], kept["token"], *hashes):
        assert page.person(f"{name}={known}") == ""
        assert page.ask("/api/login", body={"code": known})[0] == 401
    # programs send their token each time: nothing of that is kept
    connection = HTTPConnection("127.0.0.1", page.port, timeout=PATIENCE)
    connection.request("GET", "/api/me", headers={"Authorization": f"Bearer {token}"})
    assert connection.getresponse().status == 200
    page.log_in(token)
    assert [each["token"] for each in json.loads(page.file.read_text())["logins"]] == [kept["token"]] * 2


def kept_by(home: ForgeHome) -> TeamLogin:
    """The logins of a page that has just started there."""
    login = TeamLogin()
    login.keep(home, 8100, time.time())
    return login


def rewritten(file: Path, **given: Any) -> None:
    kept = json.loads(file.read_text())
    for row in kept["logins"]:
        row.update(given)
    file.write_text(json.dumps(kept))


SPOILED: dict[str, Callable[[Path], object]] = {
    "others may write it": lambda file: file.chmod(0o620),
    "a link": lambda file: file.symlink_to(file.rename(file.with_name("elsewhere.json"))),
    "no JSON": lambda file: file.write_text(file.read_text()[:-5]),
    "a time that is too far": lambda file: rewritten(file, until=time.time() + DAY),
    "a bearer": lambda file: rewritten(file, token=json.loads(file.read_text())["logins"][0]["cookie"]),
    "odd": lambda file: rewritten(file, cookie="\u00fc" * 64),
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_somebody_else_may_have_written_lets_nobody_in(tmp_path: Path, spoil: str) -> None:
    home, mine = ForgeHome(tmp_path / "home"), secret_hash("mine")
    login = kept_by(home)
    cookie = login.enter(mine)
    login.save()
    login.close()
    SPOILED[spoil](home.path / "state" / "web" / "8100-logins.json")
    login = kept_by(home)
    assert not login.knows(cookie)
    again = login.enter(mine)
    login.save()
    login.close()
    login = kept_by(home)
    assert login.knows(again)
    login.close()


def test_a_login_that_cannot_be_kept_is_a_login_and_one_that_ended_does_not_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, mine = ForgeHome(tmp_path / "home"), secret_hash("mine")
    login = kept_by(home)
    cookie, other = login.enter(mine), login.enter(mine)
    login.save()
    login.forget(cookie)
    path = home.path / "state" / "web" / "8100-logins.json"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # as a full disk: a file can be removed, not written
    try:
        login.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert login.knows(other)
    assert not path.exists()
    assert "log in again after a restart" in caplog.text
    login.close()
    again = kept_by(home)
    assert not again.knows(cookie)
    again.close()


def test_one_process_keeps_the_logins_of_an_address(tmp_path: Path) -> None:
    home, mine = ForgeHome(tmp_path / "home"), secret_hash("mine")
    first = kept_by(home)
    cookie = first.enter(mine)
    first.save()
    second = kept_by(home)  # the same port of another address
    other = second.enter(mine)
    second.save()
    assert not second.knows(cookie)
    first.close()
    first.enter(mine)
    first.save()  # from here on the file is its successor's
    third = kept_by(home)
    assert [third.knows(each) for each in (cookie, other)] == [True, False]
    assert len(json.loads((home.path / "state" / "web" / "8100-logins.json").read_text())["logins"]) == 1
    assert oct(os.stat(home.path / "state" / "web").st_mode)[-3:] == "700"
    third.close()


def test_a_second_page_at_a_port_says_that_the_port_is_taken_and_nothing_else(page: TeamPage, tmp_path: Path) -> None:
    command, scratch = ["forge", "web", "--team", "--port", str(page.port)], tmp_path / "scratch"
    scratch.mkdir()
    second = page.ready.start(command, cwd=page.program.folder, env=page.program.environ | {"TMPDIR": str(scratch)})
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 1 and out == ""
    assert f":{page.port}: Address already in use" in err and err.count("\n") == 1, err
    assert not list(scratch.iterdir())
