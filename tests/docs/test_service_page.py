"""The nginx block of docs/guides/service.md, as it stands there, before a real session: HTTPS, login, socket, files.

Only its ports and places are others. Where nginx is missing the test skips by name; with CI=true `make test` has failed
before. The commands of the page have no option that Forge does not know.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.deadlines import PATIENCE
from websockets.asyncio.client import connect

from golem_forge.cli.mcp.serve import SERVE_HELP
from golem_forge.cli.web import HELP

PAGE = (Path(__file__).parents[2] / "docs" / "guides/service.md").read_text()
NAME = "forge.example.com"


def test_the_commands_of_the_page_have_options_that_forge_knows() -> None:
    lines = [line.replace('", "', " ").strip('CMD ["]') for line in PAGE.splitlines() if "`" not in line]
    commands = [line[line.index("forge ") :] for line in lines if re.search(r"\bforge (web|mcp serve) +--", line)]
    assert len(commands) == 4, commands
    for command in commands:
        known = HELP if command.startswith("forge web") else SERVE_HELP
        given = [word for word in shlex.split(command) if word.startswith("-")]
        assert [word for word in given if not re.search(rf"(?<![\w-]){word}(?![\w-])", known)] == [], command


@asynccontextmanager
async def nginx_in_front(address: str, folder: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """The page's block with a certificate made now. Gives the port it listens on, and who trusts that certificate."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not program or not shutil.which("openssl"):
        pytest.skip("this machine has no nginx or no openssl: see build/missing-parts")
    key, certificate = folder / "forge.key", folder / "forge.crt"
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"),
        *("-addext", f"subjectAltName=DNS:{NAME}", "-keyout", str(key), "-out", str(certificate)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    place = socket.socket()  # held until nginx has ended: nobody else comes to listen there
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind(("127.0.0.1", 0))
    port = place.getsockname()[1]
    [block] = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    for here, there in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} reuseport ssl"),
        ("http://127.0.0.1:8100", address),
        ("/etc/ssl/", f"{folder}/"),
    ):
        assert here in block
        block = block.replace(here, there)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root; " if os.geteuid() == 0 else ""
    main = f"{user}daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; events {{ }}"
    (folder / "nginx.conf").write_text(f"{main}\nhttp {{ access_log off; {places}\n{block} }}\n")
    running = await asyncio.create_subprocess_exec(
        program, "-c", str(folder / "nginx.conf"), "-e", "stderr", stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while running.returncode is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        assert running.returncode is None, (await running.communicate())[1].decode()
        yield port, ssl.create_default_context(cafile=str(certificate))
    finally:
        if running.returncode is None:
            running.terminate()
        await running.wait()
        place.close()


async def ask(
    port: int, trusting: ssl.SSLContext, method: str, path: str, body: bytes, **headers: str
) -> tuple[int, str]:
    """(status, head and body) of one request, as a browser at the public name sends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=NAME)
    given = {
        "Host": f"{NAME}:{port}",
        "Origin": f"https://{NAME}:{port}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    } | headers
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    async with asyncio.timeout(PATIENCE):
        answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer


@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_works_behind_the_nginx_of_the_guide(staged: Any, said_calls: Any, tmp_path: Path) -> None:
    write = ("write_file", {"path": "/workspace/hello.txt", "content": "hello\n"})
    stage = await staged([said_calls(write), "It is there."], approval="interactive", allow_hosts=(NAME,))
    (tmp_path / "nginx").mkdir()
    async with nginx_in_front(stage.address, tmp_path / "nginx") as (port, trusting):
        status, _ = await ask(port, trusting, "GET", "/main.js", b"")
        assert status == 200
        code = json.dumps({"code": urlsplit(stage.link()).fragment.removeprefix("code=")}).encode()
        status, _ = await ask(port, trusting, "POST", "/api/login", code, Origin="https://evil.test")
        assert status == 403, "another website does not get in through the proxy either"
        status, answer = await ask(port, trusting, "POST", "/api/login", code)
        assert status == 204
        [cookie] = re.findall(r"(?i)^set-cookie: (.*)\r$", answer, re.MULTILINE)
        assert cookie.endswith("; Secure"), "the browser sends it over HTTPS only"
        cookie = cookie.partition(";")[0]

        status, answer = await ask(port, trusting, "GET", "/api/me", b"", Cookie=cookie)
        session = json.loads(answer.partition("\r\n\r\n")[2])["current"]
        path, large = f"/api/sessions/{session}", b"a" * (3 << 20)
        status, answer = await ask(port, trusting, "POST", f"{path}/attachments?name=a.txt", large, Cookie=cookie)
        assert (status, '"size":3145728' in answer) == (201, True), answer

        seen = await asyncio.wait_for(_talk(port, trusting, f"{path}/stream", cookie), PATIENCE)
    assert seen == ["approvalRequired", "toolResult", "It is there."], "each came while the next was still awaited"
    assert (stage.directory / "hello.txt").read_text() == "hello\n"


async def _talk(port: int, trusting: ssl.SSLContext, path: str, cookie: str) -> list[str]:
    """Says one thing, approves what is asked, and leaves at the answer."""
    seen: list[str] = []
    async with connect(
        f"wss://{NAME}:{port}{path}",
        host="127.0.0.1",
        port=port,
        ssl=trusting,
        server_hostname=NAME,
        origin=f"https://{NAME}:{port}",  # type: ignore[arg-type]
        additional_headers={"Cookie": cookie},
        proxy=None,
    ) as stream:
        async for text in stream:
            frame = json.loads(text)
            if frame["kind"] != "event":
                continue
            kind, data = frame["event"]["type"], frame["event"]["data"]
            if kind == "inputPrompt":
                said = {"requestId": data["requestId"], "content": "Write hello.txt, please."}
                await stream.send(json.dumps({"id": "1", "type": "userInput", "data": said}))
            elif kind == "approvalRequired":
                seen.append(kind)
                said = {"requestId": data["requestId"], "approved": True}
                await stream.send(json.dumps({"id": "2", "type": "approvalResponse", "data": said}))
            elif kind == "toolResult":
                seen.append(kind)
            elif kind == "message" and data["message"]["role"] == "assistant" and data["message"]["content"]:
                return [*seen, data["message"]["content"]]
    return seen
