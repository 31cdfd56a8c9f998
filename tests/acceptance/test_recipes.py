"""The recipes: agents of other libraries with Forge's tools, and a worker inside a web app with its own approval page.

The libraries, `forge mcp serve`, the tools and the browser are real. The model is a local server in OpenAI's format, or
the function that the recipe brings along.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from tests.deadlines import PATIENCE
from tests.mcp import foreign

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
PYTHONS = {
    "openai_agents_mcp": foreign.python,
    "pydantic_ai_mcp": foreign.python,
    "langchain_mcp": foreign.langchain_python,
}


@pytest.fixture
def place(tmp_path: Path, ready_forge: Any) -> Any:
    """A trusted copy of the recipes."""
    root = tmp_path / "recipes"
    shutil.copytree(RECIPES, root, ignore=shutil.ignore_patterns("__pycache__"))
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    environ |= {"FORGE": ready_forge.forge, "OPENAI_API_KEY": "canary-key-9", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    assert ready_forge("trust", "--yes", cwd=root, env=environ).returncode == 0
    return SimpleNamespace(root=root, environ=environ, forge=ready_forge)


def ticket(root: Path) -> dict[str, Any]:
    tickets = json.loads((root / "tickets" / "tickets.json").read_text())
    seven: dict[str, Any] = tickets["7"]
    return seven


@pytest.mark.foreign
@pytest.mark.long
@pytest.mark.parametrize("recipe", PYTHONS)
def test_an_agent_of_another_library_calls_forges_tools(place: Any, wire: Any, recipe: str) -> None:
    """The model closes a ticket twice. The person says no, then yes, where the library can ask a person."""
    asks = recipe != "openai_agents_mcp"
    close = wire.WireCall(name="close_ticket", args={"number": "7", "answer": "There is paper again."})
    turns = [
        wire.WireTurn(calls=(wire.WireCall(name="open_tickets", args={}),)),
        wire.WireTurn(calls=(close,)),
        wire.WireTurn(calls=(close,)),
        wire.WireTurn(say="That was ticket 7."),
    ]
    with wire.WireServer(turns) as server:
        ran = subprocess.run(
            [*PYTHONS[recipe](), f"{recipe}.py", "Close ticket 7."],
            cwd=place.root,
            env=place.environ | {"OPENAI_BASE_URL": server.base_url("openai")},
            input="n\ny\n",
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
        )
    assert ran.returncode == 0 and ran.stdout.endswith("That was ticket 7.\n"), ran.stdout + ran.stderr
    assert "Warning" not in ran.stderr, ran.stderr
    assert ran.stdout.count("Approve 'close_ticket'?") == (2 if asks else 0), "the person reads what Forge asks"
    _, listed, denied, ended = (last_message(request.body) for request in server.requests)
    assert "7: The printer is out of paper" in listed
    assert "approval_denied" in denied and "closed 7" not in denied
    assert ("closed 7" if asks else "needs approval and this client cannot ask") in ended
    assert ticket(place.root)["open"] is not asks
    log = place.forge("log", "--session", "last", cwd=place.root, env=place.environ).stdout
    assert log.count('answer="There is paper again."') == 2 and "open_tickets" in log, "the journal has every call"


def last_message(body: dict[str, Any]) -> str:
    """What the model was told last, in either of OpenAI's formats."""
    return json.dumps(body.get("messages", body.get("input"))[-1])


@pytest_asyncio.fixture(loop_scope="session")
async def desk(tmp_path: Path) -> AsyncIterator[str]:
    """The link that the app prints."""
    app = await asyncio.create_subprocess_exec(
        sys.executable, str(RECIPES / "fastapi_approvals.py"), "0", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert app.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            line = (await app.stdout.readline()).decode()
        assert line.startswith("open http://127.0.0.1:"), line
        yield line.removeprefix("open ").strip()
    finally:
        app.terminate()
        async with asyncio.timeout(PATIENCE):
            await app.wait()


@pytest.mark.asyncio(loop_scope="session")
async def test_a_person_answers_on_the_apps_own_page(desk: str, windows: Callable[..., Any]) -> None:
    window = await windows()
    await window.open(desk)
    page = window.page
    await page.get_by_label("Task").fill("Close ticket 7.")
    await page.get_by_label("Task").press("Enter")
    await window.sees("close_ticket wants to run (risk: high)")
    await window.sees('"answer": "<b>There is paper again.</b>"')
    assert await page.locator("b").count() == 0, "a model's text is never markup"
    assert await window.accessible() == []
    await window.picture("recipe-approval-page")

    await page.get_by_role("button", name="Deny").click()
    await window.sees("assistant: Then ticket 7 stays open.")
    await window.sees("close_ticket: approval_denied")
    assert not await page.get_by_role("button", name="Approve once").is_visible()

    await page.get_by_label("Task").fill("Please do.")
    await page.get_by_label("Task").press("Enter")
    await page.get_by_role("button", name="Approve once").click()
    await window.sees("assistant: Ticket 7 is closed.")
    await window.sees("close_ticket: success")
    await nobody_reaches_it_without_its_link(desk)


async def nobody_reaches_it_without_its_link(desk: str) -> None:
    address = desk.partition("/?")[0]
    for method, path in (("GET", "/"), ("GET", "/events"), ("POST", "/tasks"), ("POST", "/answers?key=guess")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(post, address + path, method, {"id": "x", "approved": True, "text": "go"})
        assert refused.value.code == 403, path
    late = desk.replace("/?", "/answers?")
    with pytest.raises(urllib.error.HTTPError) as closed:
        await asyncio.to_thread(post, late, "POST", {"id": "x", "approved": True})
    assert closed.value.code == 409 and b"not open any more" in closed.value.read()


def post(url: str, method: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode() if method == "POST" else None
    asked = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    urllib.request.urlopen(asked, timeout=PATIENCE).close()
