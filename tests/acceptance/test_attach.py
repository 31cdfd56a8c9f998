"""A background session at a terminal, wherever it runs: history, live text, cards, messages; it goes on without it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from tests.acceptance.conftest import Desk
from tests.acceptance.test_ports import SERVER
from tests.deadlines import PATIENCE

from golem_forge.sandbox.walls.bubblewrap import find_bwrap

WORKER = """---
name: main
description: writes a file
mode: chat
sandbox: {zones: [{name: work, mode: rw}]}
toolsets: {filesystem: {}}
---
write
"""
PROGRAM = """
model: scripted:script.yaml
sandbox: {zones: {work: {path: ./work, mode: rw, approval: {write: ask}}}}
"""
SLOW = "Slowly the words of this answer come, one after another, until all of them stand there."
SCRIPT = f"""
turns:
  - say: I write it.
    calls: [{{tool: write_file, args: {{path: /work/a.txt, content: hello}}}}]
  - say: It is written.
  - say: {SLOW}
    chunks: 20
    until: go-on
  - say: Endless words that nobody waits for and that somebody interrupts
    chunks: 60
    until: never
"""


def ps(desk: Desk) -> list[dict[str, Any]]:
    return json.loads(desk.forge("ps", "--all", "--json").out)


def test_a_session_is_answered_and_led_from_another_home_on_the_same_store(
    desk: Callable[..., Desk], terminal: Callable[..., Any], until: Callable[..., Any]
) -> None:
    there = desk({"main.worker": WORKER, "forge.yaml": PROGRAM, "script.yaml": SCRIPT})
    (there.root / "work").mkdir()
    assert there.forge("run", "--background", "--no-runner", "write the file").code == 0
    there.start("runner")
    (session,) = until(lambda: [row for row in ps(there) if row["state"] == "waiting"], "it asks")
    here = desk({}, "elsewhere")
    here.home.mkdir()
    (here.home / "config.yaml").write_text(f"store: {{url: 'sqlite://{there.home}/state/sessions.db'}}\n")

    screen = terminal(here, "attach", session["session"][:12], TERM="xterm")
    screen.wait_for("write the file")
    screen.wait_for("I write it.")
    screen.wait_for("Approve?")
    screen.wait_for("y once")
    screen.paste("please")
    screen.wait_for("your text waits in the input line", anywhere=False)
    screen.send("y")  # text waits: it goes there
    screen.wait_for("> pleasey", anywhere=False)
    screen.send("\x15")
    screen.wait_for("(y once", anywhere=False)
    assert not (there.root / "work" / "a.txt").exists()
    screen.send("y")
    screen.wait_for("It is written.")
    assert (there.root / "work" / "a.txt").read_text() == "hello"

    screen.send("go on\r")
    screen.wait_for("Slowly the words")
    assert "stand there." not in screen.text  # text as it comes
    screen.send("/ports\r")
    screen.wait_for("No command of this session listens on a port.")  # its runner says so
    (there.root / "go-on").touch()
    screen.wait_for("stand there.")
    assert screen.text.count("Slowly the words") == 1

    screen.send("and once more\r")
    screen.wait_for("En")
    screen.send("\x03")
    screen.wait_for("[interrupted]")
    screen.send("/")
    screen.wait_for("/export FILE writes the session")  # only what works here is offered
    assert "/compact" not in screen.text
    screen.send("ports\r")
    screen.wait_for("nothing of it listens")
    screen.send("/tools\r")
    screen.wait_for("/tools is not available in an attached session")
    screen.send("\x1d")
    assert screen.wait_end() == 0
    assert "comes back to it" in screen.text

    left = there.forge("attach", session["session"][:12])  # its standard input is empty: it shows what is there
    assert (left.code, "It is written." in left.out) == (0, True)
    assert "waits for the next message; `forge attach" in left.err
    assert [row["state"] for row in ps(there)] == ["waiting"]
    assert there.forge("stop", session["session"][:12]).code == 0
    shown = there.forge("attach", session["session"][:12])
    assert shown.code == 130 and "It is written." in shown.out and "stopped" in shown.err
    assert there.forge("attach", "nothing").code == 4


SERVES = """---
name: main
description: serves
mode: chat
sandbox: {zones: [{name: work, mode: rw}]}
toolsets: {exec: {walled: preApproved}}
---
serve
"""
SERVED = """
turns:
  - calls: [{tool: exec_command, args: {cmd: python3 server.py 3000 hello, yield_time_ms: 0}}]
  - calls: [{tool: exec_command, args: {cmd: python3 client.py http://127.0.0.1:3000/, yield_time_ms: 30000}}]
  - say: It serves, and I look at it for as long as nobody opens the gate.
    chunks: 20
    until: go-on
"""
PATIENT = f"""\
import time, urllib.error, urllib.request as r, sys
while True:
    try:
        print(r.urlopen(sys.argv[1], timeout={PATIENCE}).read().decode())
        break
    except urllib.error.URLError:
        time.sleep(0.05)
"""


@pytest.mark.long
def test_the_ports_of_a_session_are_listed_and_published_from_an_attached_terminal(
    desk: Callable[..., Desk], terminal: Callable[..., Any], until: Callable[..., Any]
) -> None:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    there = desk({"main.worker": SERVES, "forge.yaml": PROGRAM, "script.yaml": SERVED})
    there.know_walls()
    there.trust()
    (there.root / "work").mkdir()
    (there.root / "work" / "server.py").write_text(SERVER)
    (there.root / "work" / "client.py").write_text(PATIENT)
    assert there.forge("run", "--background", "--no-runner", "serve").code == 0
    there.start("runner")
    (session,) = until(lambda: [row for row in ps(there) if row["state"] == "running"], "it runs")

    screen = terminal(there, "attach", session["session"][:12], TERM="xterm")
    screen.wait_for("It ser")
    screen.send("/ports\r")
    screen.wait_for("server.py 3000 hello")
    screen.wait_for("/publish PORT gives you a link")
    screen.send("/publish 3000\r")
    screen.wait_for("port 3000 is at http://127.")
    screen.wait_for("no other computer does")
    url = re.findall(r"port 3000 is at (http://127\.[0-9.]+:[0-9]+/)", screen.text)[-1]
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=PATIENCE) as answer:
        assert answer.read() == b"hello /"
    screen.send("/publish x\r")
    screen.wait_for("write a port")
    screen.send("/unpublish 3000\r")
    screen.wait_for("is not published any more")
    (there.root / "go-on").touch()
    until(lambda: [row for row in ps(there) if row["state"] == "waiting"], "the turn ends")
    screen.send("/ports\r")
    screen.wait_for("nothing of it listens")
    screen.send("\x1d")
    assert screen.wait_end() == 0
    assert there.forge("stop", session["session"][:12]).code == 0
