"""The program and the fixtures of the acceptance tests, for tests of what an editor is sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.acceptance.conftest import Desk
from tests.acceptance.conftest import desk as desk
from tests.acceptance.conftest import desks as desks
from tests.ui.acp.editor import FILES, Editor

from golem_forge.agent.trust import trust_store
from golem_forge.storage.home import ForgeHome


@pytest.fixture
def program(desk: Callable[..., Any]) -> Any:
    return ready_program(desk(FILES))


def ready_program(made: Desk) -> Desk:
    trust_store(ForgeHome(made.home)).give(made.root)
    made.know_walls()
    return made


@pytest.fixture(scope="module")
def one_editor(tmp_path_factory: pytest.TempPathFactory, ready_forge: Any, tried_walls: Any) -> Iterator[Editor]:
    place = tmp_path_factory.mktemp("editor")
    (place / "program").mkdir()
    environ = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    environ |= {"HOME": str(place), "FORGE_HOME": str(place / "home")}
    made = Desk(place / "program", place / "home", environ, ready_forge, tried_walls)
    made.write(**FILES)
    with Editor(ready_program(made)) as editor:
        yield editor


@pytest.fixture
def editor(one_editor: Editor) -> Iterator[Editor]:
    """One for all tests of a file that need nothing of their own but a session: those that they open here are closed
    behind them."""
    one_editor.answers = "allow_once"
    yield one_editor
    for session in one_editor.opened:
        one_editor.request("session/close", sessionId=session)
    one_editor.opened.clear()
    one_editor.forget()
