"""Narrow exits: a device, a socket of the host, and one command outside the walls, where the person's own config says
so and nowhere else."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.conftest import until
from tests.acceptance.mcp_serving import alive
from tests.deadlines import ever_longer
from tests.ui.web.stage import calls

from golem_forge import WorkerRuntime, open_session
from golem_forge.agent.files.worker_file import parse_worker
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.cli.doctor import check_walls
from golem_forge.cli.sandbox import run as forge_sandbox
from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import AnsweredBy, Risk, Status, Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.storage.home import forge_home

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")

ASK_DAEMON = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); print(s.makefile().readline(), end='')"


class Daemon:
    """A stand-in for a container daemon: whoever connects is told where it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            with caller:
                caller.sendall(b"the daemon of the host\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    monkeypatch.chdir(root)
    forge_home().ensure()
    return root


@pytest.fixture
def daemon(tmp_path: Path, project: Path) -> Iterator[Daemon]:
    folder = tmp_path / "run"
    folder.mkdir()
    made = Daemon(folder / "docker.sock")
    yield made
    made.close()


def config(text: str) -> None:
    forge_home().config.write_text(text)


class Person:
    """Says yes or no, and keeps the cards."""

    def __init__(self, yes: bool = True, **answer: Any) -> None:
        self.cards: list[Any] = []
        self._answer = {"approved": yes, **answer}

    def __call__(self, request: Any) -> dict[str, Any]:
        self.cards.append(request)
        return self._answer


async def command(cmd: str, person: Any = None, approval: str | None = None, **args: Any) -> Outcome:
    asked = approval or ("interactive" if person else "auto_deny")
    async with open_session(".", approval=asked, approval_callback=person) as session:
        return await session.call("exec_command", {"cmd": cmd, **args})


def text(outcome: Outcome) -> str:
    return outcome.result.text if outcome.result else outcome.error


# ---- a socket


async def test_a_socket_of_the_config_is_reached_and_its_card_says_that_no_walls_hold(daemon: Daemon) -> None:
    script = f'python3 -ISc "{ASK_DAEMON.format(daemon.path)}"'
    hidden = await command(script, Person())
    assert "the daemon of the host" not in text(hidden)
    config(f"sandbox: {{sockets: [{daemon.path}]}}\n")
    person = Person()
    reached = await command(script, person)
    assert "the daemon of the host" in text(reached)
    card = person.cards[0]
    assert card.risk == Risk.CRITICAL.value
    assert any(f"NO WALLS: the command can reach {daemon.path}" in reason for reason in card.risk_reasons)
    assert any(f"socket {daemon.path}" in warning for warning in card.warnings)
    assert [choice.id for choice in card.choices] == ["exact:session"]
    async with open_session(".", approval="interactive", approval_callback=person) as session:
        await session.call("write_file", {"path": "b.txt", "content": "x"})
    edit = person.cards[-1]
    assert edit.tool == "write_file" and edit.risk == Risk.MEDIUM.value
    assert any(f"socket {daemon.path}" in warning for warning in edit.warnings), "every card of the session says so"


async def test_a_command_that_can_reach_a_socket_is_never_contained_and_no_rule_lifts_it(daemon: Daemon) -> None:
    config(f"sandbox: {{sockets: [{daemon.path}]}}\n")
    (forge_home().path / "rules.yaml").write_text("version: 1\nrules:\n- {command: [touch], verdict: preApproved}\n")
    person = Person(yes=False)
    for mode in ("interactive", "contained"):
        refused = await command("touch b", person, mode)
        assert refused.status is Status.APPROVAL_DENIED
        assert refused.decision is not None and refused.decision.decided_by is not None
        assert refused.decision.decided_by.id == "no_walls"
    assert len(person.cards) == 2


async def test_what_is_proven_to_only_read_runs_unasked_and_without_the_socket(daemon: Daemon) -> None:
    config(f"sandbox: {{sockets: [{daemon.path}], devices: [/dev/full]}}\n")
    read = await command("cat a.txt")
    assert read.status is Status.SUCCESS and read.decision is not None
    assert read.decision.verdict is Verdict.PRE_APPROVED


async def test_a_program_that_misses_a_daemon_is_told_the_way(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(daemon.path.parent))
    said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    failed = await command(f"echo '{said}'; exit 1", Person())
    assert failed.status is Status.SANDBOX_DENIED
    assert f"sandbox: {{sockets: [{daemon.path}]}}" in text(failed)
    config(f"sandbox: {{sockets: [{daemon.path}]}}\n")
    assert "sandbox: {sockets" not in text(await command(f"echo '{said}'; exit 1", Person()))


# ---- a device


def usable_device() -> str:
    for name in ("/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/hwrng"):
        if os.access(name, os.R_OK | os.W_OK):
            return name
    pytest.skip("this machine has no device of /dev/fuse, /dev/kvm, /dev/net/tun, /dev/hwrng that this user may open")


async def test_a_device_of_the_config_can_be_opened(project: Path) -> None:
    device = usable_device()
    script = f"python3 -ISc \"open('{device}', 'rb', 0); print('opened')\" && exit 1"
    missed = await command(script, Person())
    assert "opened" not in text(missed)
    assert f"sandbox: {{devices: [{device if device != '/dev/kvm' else 'kvm'}]}}" in text(missed)
    config(f"sandbox: {{devices: [{device}]}}\n")
    person = Person()
    assert "opened" in text(await command(script, person))
    assert any(f"device {device}" in warning for warning in person.cards[0].warnings)
    assert person.cards[0].risk != Risk.CRITICAL.value


def test_explain_knows_what_is_open(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    device = usable_device()
    config(f"sandbox: {{devices: [{device}], sockets: [{daemon.path}]}}\n")
    for path, said in ((device, "a device of the host"), (str(daemon.path), "a socket of the host")):
        assert forge_sandbox(["explain", path]) == 0
        assert said in capsys.readouterr().out


async def test_a_device_that_belongs_to_no_group_is_not_contained(project: Path) -> None:
    device = usable_device()
    if device == "/dev/kvm":
        pytest.skip("only /dev/kvm is usable here, which is a group")
    config(f"sandbox: {{devices: [{device}]}}\n")
    refused = await command("touch b", Person(yes=False), "contained")
    assert refused.decision is not None
    assert f"it can use the device {device}" in refused.decision.not_contained


async def test_root_cannot_change_the_mode_of_a_device(project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root owns devices")
    device = usable_device()
    before = os.stat(device).st_mode
    config(f"sandbox: {{devices: [{device}]}}\n")
    await command(f"chmod 666 {device}; true", Person())
    assert os.stat(device).st_mode == before


async def test_terminals_memory_and_disks_are_never_shown(project: Path) -> None:
    devices = [name for name in ("/dev/tty", "/dev/mem", "/dev/loop0") if os.path.exists(name)]
    config(f"sandbox: {{devices: [{', '.join(devices)}]}}\n")
    async with open_session(".", approval="auto_deny") as session:
        assert session.path.walls is not None
        assert not session.path.walls.exits()
        for device in devices:
            assert any(device in notice for notice in session.path.walls.notices), device


async def test_nvidia(project: Path) -> None:
    if not os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has no NVIDIA device")
    config("sandbox: {devices: [nvidia]}\n")
    listed = await command("nvidia-smi -L", Person())
    assert listed.status is Status.SUCCESS and "GPU 0" in text(listed)


async def test_a_group_that_is_not_there_is_told_and_stops_nothing(project: Path) -> None:
    if os.path.exists("/dev/kvm"):
        pytest.skip("this machine has /dev/kvm")
    config("sandbox: {devices: [kvm]}\n")
    async with open_session(".", approval="auto_deny") as session:
        assert session.path.walls is not None
        assert "sandbox.devices: this machine has no kvm device" in session.path.walls.notices
        assert (await session.call("exec_command", {"cmd": "cat a.txt"})).status is Status.SUCCESS


# ---- who may say it


@pytest.mark.parametrize(
    ("key", "value", "flag"),
    [("devices", "[kvm]", "--device"), ("sockets", "[/run/docker.sock]", "--socket"), ("outside", "ask", "--set")],
)
def test_a_program_and_a_worker_cannot_say_it(key: str, value: str, flag: str, project: Path) -> None:
    (project / "forge.yaml").write_text(f"sandbox:\n  {key}: {value}\n")
    with pytest.raises(ConfigError) as refused:
        open_session(".")
    assert f"forge.yaml:2: sandbox.{key}: opens the walls" in str(refused.value)
    assert "config.yaml in FORGE_HOME" in str(refused.value) and flag in str(refused.value)
    (project / "forge.yaml").unlink()
    read = parse_worker(
        f"---\nname: w\nsandbox:\n  {key}: {value}\n---\nx\n".encode(), "w.worker", project / "w.worker"
    )
    assert any(f"w.worker:4: sandbox.{key}: opens the walls" in each for each in getattr(read, "found", ()))


def test_the_options_open_one_session_and_no_other(desk: Callable[..., Any], daemon: Daemon) -> None:
    """In the terminal, and in a session of the background, whose card goes to the inbox."""
    place = desk({})
    place.know_walls()
    device = usable_device()
    look = f'python3 -ISc "{ASK_DAEMON.format(daemon.path)}"; ls {device}'
    place.write(
        **{
            "words.json": json.dumps(
                {"turns": [{"calls": [{"tool": "exec_command", "args": {"cmd": look}}]}, {"say": "done"}]}
            )
        }
    )
    run = ("run", "--model", "scripted:words.json", "--approval", "approve_all")
    exits = ("--socket", str(daemon.path), "--device", device)

    def said(*options: str) -> str:
        before = place.journals
        ran = place.forge(*run, *options, "-i", "go")
        assert ran.code == 0, ran.err
        return "".join(path.read_text() for path in place.journals if path not in before)

    inside = said(*exits)
    assert "the daemon of the host" in inside and "No such file" not in inside
    closed = said()
    assert "the daemon of the host" not in closed and "No such file" in closed
    words = ("run", "--background", "--no-runner", "--model", "scripted:words.json", *exits, "go")
    assert place.forge(*words).code == 0
    assert place.forge("runner", "--idle", "1").code == 0
    [question] = json.loads(place.forge("inbox", "--json").out)
    card = place.forge("inbox", question["question"]).out
    assert f"NO WALLS: the command can reach {daemon.path}" in card and device in card


def test_doctor_names_what_is_open(daemon: Daemon) -> None:
    config(f"sandbox: {{sockets: [{daemon.path}], outside: ask}}\n")
    program = read_program(Path.cwd(), forge_home(), trust_store(forge_home()))
    told = [finding.text for finding in check_walls(program, forge_home()) if finding.about == "exits"]
    assert any(f"the socket {daemon.path}" in each for each in told)
    assert any("outside the walls" in each for each in told)


# ---- one command outside


async def test_the_parameter_is_there_only_where_the_config_says_so(project: Path) -> None:
    async with open_session(".", approval="auto_deny") as session:
        tool = session.path.catalog.get("exec_command")
        assert tool is not None and "outside" not in tool.input_schema["properties"]
        refused = await session.call("exec_command", {"cmd": "id", "outside": True, "reason": "x"})
        assert refused.status is Status.INPUT_INVALID
    config("sandbox: {outside: ask}\n")
    async with open_session(".", approval="auto_deny") as session:
        tool = session.path.catalog.get("exec_command")
        assert tool is not None and {"outside", "reason"} <= set(tool.input_schema["properties"])


async def test_one_command_runs_outside_by_a_persons_yes(project: Path, tmp_path: Path) -> None:
    config("sandbox: {outside: ask}\n")
    elsewhere = tmp_path / "elsewhere"
    person = Person()
    ran = await command(f"echo 'out there' > {elsewhere}; pwd", person, outside=True, reason="it must leave")
    assert ran.status is Status.SUCCESS and elsewhere.read_text() == "out there\n"
    assert "It ran outside the walls." in text(ran)
    assert str(project) not in text(ran), "a zone's host path is rewritten as everywhere"
    card = person.cards[0]
    assert card.risk == Risk.CRITICAL.value
    assert any(reason.startswith("NO WALLS: this one command") for reason in card.risk_reasons)
    assert card.payload == f"echo 'out there' > {elsewhere}; pwd"
    assert card.model_note == "it must leave" and card.choices == ()
    assert ran.decision is not None and ran.decision.answered_by is AnsweredBy.PERSON


async def test_it_is_never_remembered_and_each_call_has_a_card_of_its_own(project: Path) -> None:
    config("sandbox: {outside: ask}\n")
    person = Person(remember="session")
    async with open_session(".", approval="interactive", approval_callback=person) as session:
        call = {"cmd": "true", "outside": True, "reason": "again"}
        for _ in range(3):
            assert (await session.call("exec_command", call)).status is Status.SUCCESS
        assert session.state.controller.memory.grants() == {}
    assert len(person.cards) == 3


async def test_a_session_that_is_taken_up_again_keeps_no_yes(project: Path, tmp_path: Path) -> None:
    """By another process, with the answers that a session keeps: the card comes again, and nobody's absence is a yes.
    Where the settings there do not offer it, the call does not exist."""
    config("sandbox: {outside: ask}\n")
    made = tmp_path / "outside"
    call = calls(("exec_command", {"cmd": f"echo x >> {made}", "outside": True, "reason": "it must leave"}))

    async def turn(person: Any, mode: str, resume: str = "") -> tuple[str, str]:
        turns = [call, "Done."]
        script = FunctionScript(lambda request: turns.pop(0))
        runtime = WorkerRuntime(
            directory=project, model=script, approval_mode=mode, approval_callback=person, resume=resume
        )
        results: list[Any] = []
        runtime.bus.on("toolResult", lambda event: results.append(event.wire["status"]))
        await runtime.initialize()
        try:
            await runtime.turn("go")
            return runtime.session_id, results[-1]
        finally:
            await runtime.aclose()

    first = Person(remember="session")
    session, status = await turn(first, "interactive")
    assert status == "success" and len(first.cards) == 1
    second = Person(yes=False)
    assert (await turn(second, "approve_all", session))[1] == "approval_denied" and len(second.cards) == 1
    assert (await turn(None, "approve_all", session))[1] == "approval_denied"
    config("")
    assert (await turn(Person(), "interactive", session))[1] == "input_invalid"
    assert made.read_text() == "x\n"


async def test_no_mode_answers_for_a_person(project: Path, tmp_path: Path) -> None:
    config("sandbox: {outside: ask}\n")
    elsewhere = tmp_path / "elsewhere"
    for mode in ("approve_all", "contained", "auto_deny"):
        denied = await command(f"touch {elsewhere}", None, mode, outside=True, reason="x")
        assert denied.status is Status.APPROVAL_DENIED and "a person's own yes" in denied.error, mode
    person = Person(yes=False)
    denied = await command(f"touch {elsewhere}", person, "approve_all", outside=True, reason="x")
    assert denied.status is Status.APPROVAL_DENIED and len(person.cards) == 1, "who is there is asked"
    assert not elsewhere.exists()


UNFIT: tuple[tuple[dict[str, Any], str], ...] = (
    ({"outside": True}, "reason"),
    ({"outside": True, "reason": " "}, "reason"),
    ({"reason": "x"}, "outside"),
    ({"outside": True, "reason": "x", "tty": True}, "tty"),
    ({"outside": True, "reason": "x", "network": ["a.test"]}, "network"),
)


async def test_what_does_not_fit_and_what_is_blocked_is_refused(project: Path) -> None:
    config("sandbox: {outside: ask}\n")
    person = Person()
    async with open_session(".", approval="interactive", approval_callback=person) as session:
        for args, problem in UNFIT:
            refused = await session.call("exec_command", {"cmd": "id", **args})
            assert refused.status is Status.INPUT_INVALID and problem in refused.error, args
        blocked = await session.call("exec_command", {"cmd": "rm -rf /", "outside": True, "reason": "x"})
        assert blocked.status is Status.POLICY_DENIED
    assert person.cards == []


async def test_it_has_no_secret_of_the_environment_and_its_output_is_redacted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-outside-key")
    config("sandbox: {outside: ask}\n")
    ran = await command("env; echo home=$HOME", Person(), outside=True, reason="x")
    assert "canary-outside-key" not in text(ran) and f"home={os.environ['HOME']}" in text(ran)


async def test_it_dies_with_its_tree_and_is_journalled_as_outside(project: Path) -> None:
    config("sandbox: {outside: ask}\n")
    note = project / "pid"
    endless = f"(setsid sleep 600 & echo $! > {note}; wait) & sleep 600"
    for seconds in ever_longer(2):
        ran = await command(endless, Person(), outside=True, reason="x", timeout_ms=int(seconds * 1000))
        assert ran.status is Status.TIMEOUT
        if note.exists() and (started := note.read_text()):
            break
    until(lambda: not alive(int(started)), "it is ended")
    journal = next((forge_home().path / "sessions").glob("*.jsonl")).read_text()
    assert '"outside":true' in journal and '"onlyAPerson":true' in journal


async def test_a_person_who_edits_a_call_into_one_outside_sees_that_card_first(project: Path, tmp_path: Path) -> None:
    config("sandbox: {outside: ask}\n")
    cards: list[Any] = []

    def edits(request: Any) -> dict[str, Any]:
        cards.append(request)
        if len(cards) == 1:
            return {"approved": True, "args": {"cmd": f"rm -rf {tmp_path}/x", "outside": True, "reason": "me"}}
        return {"approved": False}

    denied = await command("rm -rf b", edits)
    assert denied.status is Status.APPROVAL_DENIED and len(cards) == 2
    assert any(reason.startswith("NO WALLS: this one command") for reason in cards[1].risk_reasons)
