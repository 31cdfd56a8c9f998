"""The client that the MCP conformance suite drives: our pool, with a person who says yes to everything.

The suite starts it as `client.py URL` with MCP_CONFORMANCE_SCENARIO (and …_CONTEXT) in the environment, and watches
what arrives at URL. It connects, logs in where it is sent to, calls every tool it is offered, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from golem_forge.config.mcp_spec import AuthKind, ServerAuth, ServerSpec
from golem_forge.core.calls import ToolCompletion
from golem_forge.core.errors import ForgeError
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client import oauth
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer, Hooks, RemoteTool, ServerState
from golem_forge.mcp.client.oauth import CredentialStore, resource_of
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
OWN_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""Where the suite expects the document that describes a client; it is never fetched."""
MOST_LOGINS = 3


async def fill(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
    """Leaves every field as the form shows it; what must be filled in and is empty gets something of its type."""
    values: dict[str, Any] = {}
    for name, wanted in form.schema.get("properties", {}).items():
        if "default" in wanted:
            values[name] = wanted["default"]
        elif name in form.schema.get("required", ()):
            values[name] = {"boolean": True, "integer": 1, "number": 1.0}.get(wanted.get("type"), "text")
    return FormAnswer(action="accept", values=values)


class Suite:
    def __init__(self, url: str, home: ForgeHome) -> None:
        auth = ServerAuth(AuthKind.OAUTH) if SCENARIO.startswith("auth/") else ServerAuth()
        self.spec = ServerSpec(name="suite", scope="", origin="the suite", url=url, auth=auth)
        self.home = home
        book = ServerTrustStore(home)
        book.approve_server(self.spec, "person")
        self.pool = Pool(
            {"suite": self.spec},
            home=home,
            redactor=Redactor(),
            environ=os.environ,
            hooks=Hooks(ask_form=fill),
            book=book,
            cache=ManifestCache(home),
        )
        self.logins = 0
        if "client_id" in CONTEXT:
            self._register()

    def _register(self) -> None:
        """As somebody does whose authorization server gave them an id and a secret beforehand."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        client = {
            "client_id": CONTEXT["client_id"],
            "client_secret": CONTEXT.get("client_secret"),
            "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
            "token_endpoint_auth_method": "client_secret_basic",
        }
        CredentialStore(self.home).save(resource_of(self.spec.url), "registered by hand", {"client": client})

    async def run(self) -> None:
        self.pool.begin()
        await self.connected()
        await asyncio.gather(*(self.called(tool, args) for tool, args in self.calls()))
        await self.looked_around()

    async def connected(self) -> None:
        while True:
            try:
                return await self.pool.wait_connected("suite")
            except ForgeError as problem:
                if not await self.logged_in():
                    raise SystemExit(f"{problem.message}") from None

    async def logged_in(self) -> bool:
        """Whether a login was wanted and made."""
        if self.pool.status("suite").state is not ServerState.NEEDS_LOGIN or self.logins >= MOST_LOGINS:
            return False
        self.logins += 1
        visits: list[asyncio.Task[None]] = []
        await oauth.login(
            self.spec,
            self.home,
            show_url=lambda url: visits.append(asyncio.ensure_future(browse(url))),
            seconds=15,
            metadata_url=OWN_DOCUMENT,
        )
        with contextlib.suppress(ForgeError):  # it may want another login at once; whoever asks next will see
            await self.pool.reconnect("suite")
        return True

    def calls(self) -> list[tuple[RemoteTool, dict[str, Any]]]:
        listing = self.pool.listing("suite")
        tools = {tool.name: tool for tool in (listing.tools if listing else ())}
        if wanted := CONTEXT.get("toolCalls"):
            return [(tools[call["name"]], call["arguments"]) for call in wanted if call["name"] in tools]
        if focal := tools.get("json_schema_2020_12_tool"):
            rest = [tool for tool in tools.values() if tool is not focal]
            return [(tool, {"schema": dict(focal.input_schema)}) for tool in rest]
        return [(tool, some_arguments(tool)) for tool in tools.values()]

    async def called(self, tool: RemoteTool, args: dict[str, Any]) -> ToolCompletion:
        finished = await self.pool.call(tool, args, ToolContext())
        while await self.logged_in():
            finished = await self.pool.call(tool, args, ToolContext())
        print(tool.name, finished.status.value, finished.error or finished.result.text[:200])
        return finished

    async def looked_around(self) -> None:
        """Resources and prompts, where there are any."""
        try:
            resources = (await self.pool.list_resources("suite", None, ToolContext())).get("resources", [])
            for resource in resources[:3]:
                await self.pool.read_resource("suite", resource["uri"], ToolContext())
            for prompt in (await self.pool.list_prompts("suite"))[:3]:
                await self.pool.get_prompt("suite", prompt["name"], {}, ToolContext())
        except ForgeError as problem:
            print(problem.message)


def some_arguments(tool: RemoteTool) -> dict[str, Any]:
    samples = {"number": 3, "integer": 3, "string": "text", "boolean": True, "array": [], "object": {}}
    properties = tool.input_schema.get("properties", {})
    return {
        name: samples.get(properties.get(name, {}).get("type"), "text")
        for name in tool.input_schema.get("required", ())
    }


async def browse(url: str) -> None:
    """What a browser does whose person agrees to everything: follow where it is sent, to our own port in the end."""
    import httpx2

    async with httpx2.AsyncClient(follow_redirects=True, timeout=10) as browser:
        await browser.get(url)


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(url, ForgeHome(Path(folder, "home")))
        try:
            await suite.run()
        finally:
            await suite.pool.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
