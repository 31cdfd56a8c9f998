"""The key `ui` of forge.yaml, by where the page of a program is served and what it is told. ui.md §10."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import urlsplit

from tests.agent.config_keys.ground import Cases, Ground
from tests.deadlines import PATIENCE

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.cli.run import RunArgs
from golem_forge.cli.run_session import adapter_for
from golem_forge.tools.threads import run_in_thread

CASES = Cases()
key = CASES.key


async def page(ground: Ground, program: str) -> tuple[int, dict[str, Any]]:
    """(port, what the page is told of itself)"""
    ground.write("forge.yaml", program)
    runtime = WorkerRuntime(directory=ground.root, needs_model=False)
    adapter = adapter_for(RunArgs(directory=ground.root, ui=frozenset({"web"})), runtime)
    links: list[str] = []
    adapter._show_link = links.append
    await adapter.initialize()
    try:
        return urlsplit(adapter.address).port or 0, await run_in_thread(lambda: _me(links[0]))
    finally:
        await adapter.shutdown()
        await runtime.aclose()


def _me(link: str) -> dict[str, Any]:
    there = urlsplit(link)
    connection = http.client.HTTPConnection(there.netloc, timeout=PATIENCE)
    headers = {"Origin": f"http://{there.netloc}", "Content-Type": "application/json"}
    connection.request("POST", "/api/login", json.dumps({"code": there.fragment.removeprefix("code=")}), headers)
    answer = connection.getresponse()
    answer.read()
    cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
    connection.request("GET", "/api/me", headers={"Cookie": cookie})
    told: dict[str, Any] = json.load(connection.getresponse())
    return told


@key("ui.web.port")
async def port(ground: Ground) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        wanted = free.getsockname()[1]
    assert (await page(ground, f"ui: {{web: {{port: {wanted}}}}}\n"))[0] == wanted
    assert (await page(ground, ""))[0] not in (0, wanted)


@key("ui.web.notify")
async def notify(ground: Ground) -> None:
    assert (await page(ground, "ui: {web: {notify: true}}\n"))[1]["notify"] is True
    assert (await page(ground, ""))[1]["notify"] is False
