"""User tools, spec §19 cases 53–62: what is known of their use, how they call each other, and how they travel.

Calls inside a tool are made by the `forge` command that the tool finds on its PATH, in its walls; sharing goes through
the person's command, with archives on disk. Cases 59 and 61 (git, drift and updates): tests/cli/tools/test_share.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, ever_longer, within

from golem_forge.sandbox.walls.bubblewrap import find_bwrap

from .user_tools import Bench, card_text, offered, parameter, run

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")


@pytest.fixture
def bench(tmp_path: Path, ready_forge: Any) -> Bench:
    return Bench(tmp_path / "here", ready_forge)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Bench:
    """Another person's machine."""
    return Bench(tmp_path / "there")


def digest(bench: Bench, name: str) -> str:
    from golem_forge.usertools.folder import read_folder

    return read_folder(bench.tools / name).digest


# Statistics and suggestions


async def test_c53_what_happened_is_counted_for_each_digest_and_still_known_after_a_restart(bench: Bench) -> None:
    source = 'case "$1" in --how=fail) exit 3;; --how=hang) sleep 60;; *) echo fine;; esac\n'
    folder = bench.tool("x", source, parameters=[parameter("how")])
    first = digest(bench, "x")
    durations: list[float] = []
    async with bench.session() as session:
        bench.cards.yes = False
        assert (await run(session, "x", {"how": "a"})).status == "approval_denied"
        bench.cards.yes = True
        outcome = await run(session, "x", {"how": "fail"})
        assert outcome.status == "execution_failed"
        durations.append(outcome.duration_ms)
    (folder / "x.sh").write_text(f"{source}# changed\n")
    async with bench.session() as session:
        for how, expected in (("a", "success"), ("hang", "timeout"), ("c", "success")):
            before = time.time()
            if how == "hang":
                outcome = await run(session, "x", {"how": how}, timeout=0.5)
            else:
                outcome = await session.call("x", {"how": how})
            assert outcome.status == expected
            durations.append(outcome.duration_ms)
    said = bench.forge("tools", "stats", "--json")
    assert said.code == 0, said.err
    (row,) = [each for each in json.loads(said.out)["tools"] if each["name"] == "x"]
    assert (row["calls"], row["success_rate"]) == (5, 0.5), "the rate is of those that ran"
    assert row["statuses"] == {"approval_denied": 1, "success": 2, "execution_failed": 1, "timeout": 1}
    assert row["median_ms"] == pytest.approx(statistics.median(durations), abs=1)
    assert row["total_ms"] == pytest.approx(sum(durations), abs=5)
    last = datetime.fromisoformat(row["last_used"]).timestamp()
    assert before - 0.01 <= last <= time.time()
    rates = {each: row["digests"][each]["success_rate"] for each in (first, digest(bench, "x"))}
    assert rates == {first: 0.0, digest(bench, "x"): pytest.approx(2 / 3)}


def agent(desk: Callable[..., Any]) -> Any:
    return desk(
        {
            "forge.yaml": "model: scripted:s.yaml\n",
            "main.worker": "---\nname: main\ntoolsets: {filesystem: , coding: , user_tools: {create: true}}\n"
            "sandbox: {zones: [{name: workspace, mode: rw}]}\n---\nDo it.\n",
        }
    )


def repeat(place: Any, *paths: str) -> None:
    """One session in which the worker does read → grep → write for each path."""

    def turn(tool: str, **args: Any) -> dict[str, Any]:
        return {"calls": [{"tool": tool, "args": args}]}

    turns: list[dict[str, Any]] = []
    for path in paths:
        place.write(**{path: "hello\n"})
        turns += [
            turn("read_file", path=f"/workspace/{path}"),
            turn("grep_files", pattern="hello", path=f"/workspace/{path}"),
            turn("write_file", path="/workspace/out.txt", content="done"),
        ]
    place.write(**{"s.yaml": json.dumps({"turns": [*turns, {"say": "done"}]})})
    ran = place.forge("run", "--approval", "approve_all", "go")
    assert ran.code == 0, ran.err
    assert {call.status for call in place.calls()} == {"success"}, place.calls()


async def test_c54_what_came_four_times_in_two_sessions_is_suggested_once(desk: Callable[..., Any]) -> None:
    place = agent(desk)
    repeat(place, "a.txt", "b.txt")
    assert json.loads(place.forge("tools", "suggest", "--json").out)["suggestions"] == [], "twice, in one session"
    repeat(place, "c.txt", "d.txt")
    said = place.forge("tools", "suggest", "--json")
    assert said.code == 0, said.err
    (found,) = json.loads(said.out)["suggestions"]
    assert [call["name"] for call in found["sequence"]] == ["read_file", "grep_files", "write_file"]
    assert (found["occurrences"], found["sessions"]) == (4, 2)
    (one,) = found["parameters"]
    assert one["type"] == "string"
    given = [{pair["argument"]: pair["parameter"] for pair in call["parameters"]} for call in found["sequence"]]
    assert given == [{"path": one["name"]}, {"path": one["name"]}, {}], "the same value, the same parameter"
    assert found["sequence"][1]["arguments"] == {"pattern": "hello"}
    assert found["sequence"][2]["arguments"] == {"path": "/workspace/out.txt", "content": "done"}


# Composition


def streams(outcome: Any) -> tuple[str, str]:
    return outcome.result.value["stdout"], outcome.result.value["stderr"]


def caller(bench: Bench, name: str, *lines: str, calls: list[str], **more: Any) -> None:
    """A tool that runs these `forge` commands and says how each ended."""
    source = "".join(f'forge {line}\necho "[$?]"\n' for line in lines)
    bench.tool(name, source, calls=calls, **more)


async def test_c55_what_a_tool_calls_carries_its_call(bench: Bench) -> None:
    caller(bench, "a", "call b --n=1", "call b --args-json '{\"n\": 2}'", calls=["b"])
    bench.tool("b", 'echo "b got $1"\n', parameters=[parameter("n", "integer", required=True)])
    async with bench.session() as session:
        assert (await run(session, "b", {"n": 0})).ok
        seen: list[Any] = []
        session.bus.on("*", seen.append)
        outcome = await run(session, "a")
        assert outcome.text == "b got --n=1\n[0]\nb got --n=2\n[0]\n"
        started = [event.data for event in seen if event.type == "toolStarted"]
        ended = [event.data for event in seen if event.type == "toolResult"]
        assert [each.tool_name for each in started] == ["a", "b", "b"]
        assert {each.parent_call_id for each in started[1:]} == {outcome.call.id}
        assert {each.caller for each in started[1:]} == {"tool"} and started[0].parent_call_id is None
        assert len(ended) == 3
        journal = session.journal.path
    records = [json.loads(line) for line in journal.read_bytes().splitlines()]
    nested = [record for record in records if record.get("type") in ("proposed", "done") and record.get("tool") == "b"]
    parents = [record.get("parent") or record.get("parentId") for record in nested]
    assert parents.count(outcome.call.id) == 2, nested


async def test_c55_a_writer_that_calls_a_writer_does_not_wait_for_itself(bench: Bench) -> None:
    caller(bench, "a", "call b", calls=["b"], zones={"workspace": "rw"}, timeout=50)
    bench.tool("b", 'echo b > "$FORGE_WORKSPACE/b.txt"\n', zones={"workspace": "rw"})
    async with bench.session(approval="approve_all") as session:
        assert (await run(session, "b")).ok
        async with asyncio.timeout(PATIENCE):
            assert (await run(session, "a")).text == "[0]\n"
    assert (bench.workspace / "b.txt").read_text() == "b\n"


async def test_c55_a_promotion_inside_a_run_asks_for_itself(bench: Bench) -> None:
    caller(bench, "a", "call run_custom_tool --tool_name=b", calls=["run_custom_tool"])
    bench.tool("b", "echo b\n")
    async with bench.session() as session:
        outcome = await run(session, "a")
        assert [card.tool for card in bench.cards.of_trust()] == ["a", "b"]
        assert outcome.text == "b\n[0]\n"
        assert offered(session) == ["a", "b"]


async def test_c56_only_what_is_declared_and_allowed_is_called(bench: Bench) -> None:
    (bench.workspace / "forge.yaml").write_text("approval: {tools: {blocked: blocked}}\n")
    bench.tool("free", "echo free\n")
    bench.tool("blocked", "echo blocked\n")
    caller(bench, "a", "call free", "call blocked", "call blocked --json", "call nothing", calls=["blocked", "nothing"])
    assert bench.forge_here("tools", "activate", "free", "blocked", "a", "--yes").code == 0
    async with bench.session() as session:
        outcome = await session.call("a", {})
        assert [card.tool for card in bench.cards] == ["a"], "neither asks"
        lines = streams(outcome)[0].splitlines()
        assert [line for line in lines if line.startswith("[")] == ["[3]", "[3]", "[3]", "[4]"]
        told = json.loads(next(line for line in lines if line.startswith("{")))
        assert (told["status"], told["tool"]) == ("policy_denied", "blocked")
        assert "free" in streams(outcome)[1]
        assert "policy_denied" in streams(outcome)[1]


async def test_c56_what_asks_asks_once_and_shows_the_way(bench: Bench) -> None:
    caller(bench, "a", "call b", calls=["b"])
    bench.tool("b", "echo b\n")
    assert bench.forge_here("tools", "activate", "a", "b", "--yes").code == 0
    async with bench.session() as session:
        assert (await session.call("a", {})).text == "b\n[0]\n"
        _, second = bench.cards
        assert [step["name"] for step in second.worker_path] == ["default", "a"] and second.tool == "b"
        bench.cards.yes = False

        class OnlyA(list[Any]):
            def __call__(self, card: Any) -> dict[str, bool]:
                self.append(card)
                return {"approved": card.tool == "a"}

    only = OnlyA()
    async with bench.session(approval_callback=only) as session:
        outcome = await session.call("a", {})
        assert [card.tool for card in only] == ["a", "b"]
        assert streams(outcome)[0] == "[3]\n"
        assert "approval_denied" in streams(outcome)[1]


async def test_c56_exit_codes_say_what_became_of_a_call(bench: Bench) -> None:
    """Of every status, and of words that do not fit: tests/usertools/run/test_call_server.py."""
    kinds = ("ok", "fails", "slow")
    words = ("ok", "fails", "slow", """ok --args-json '{"n": "x"}'""")
    bench.tool("ok", "echo ok\n", parameters=[parameter("n", "integer")])
    bench.tool("fails", "echo out; exit 7\n")
    bench.tool("slow", "sleep 20\n", timeout=0.3)
    caller(bench, "a", *(f"call {each}" for each in words), calls=[*kinds])
    assert bench.forge_here("tools", "activate", "a", *kinds, "--yes").code == 0
    async with bench.session(approval="approve_all") as session:
        out, err = streams(await session.call("a", {}))
    codes = [line for line in out.splitlines() if line.startswith("[")]
    assert codes == ["[0]", "[1]", "[124]", "[2]"] and err.count("input_invalid") == 1


async def test_c57_the_sixth_of_a_chain_is_refused_and_the_others_are_whole(bench: Bench) -> None:
    for number in range(1, 7):
        following = f"t{number + 1}"
        if number < 6:
            caller(bench, f"t{number}", f"call {following}", calls=[following])
        else:
            bench.tool("t6", "echo sixth\n")
    assert bench.forge_here("tools", "activate", *(f"t{number}" for number in range(1, 7)), "--yes").code == 0
    async with bench.session(approval="approve_all") as session:
        seen: list[Any] = []
        session.bus.on("toolResult", lambda event: seen.append(event.data))
        outcome = await session.call("t1", {})
        assert outcome.ok
        shown = streams(outcome)[0].split()
        assert "sixth" not in shown and shown[-4:] == ["[0]"] * 4
        assert "forge: policy_denied: Tools may call each other at most 5" in outcome.text
        statuses = {each.tool_name: str(each.status) for each in seen}
        assert statuses == {"t6": "policy_denied", **{f"t{number}": "success" for number in range(1, 6)}}


async def test_c57_a_call_ends_with_its_caller(bench: Bench, marker: str) -> None:
    caller(bench, "a", "call b", calls=["b"], timeout=LONG)
    bench.tool("b", f"sleep 60 # {marker}\nexec sleep 61\n", timeout=LONG)
    assert bench.forge_here("tools", "activate", "a", "b", "--yes").code == 0
    async with bench.session(approval="approve_all") as session:
        seen: list[Any] = []
        session.bus.on("toolResult", lambda event: seen.append((event.data.tool_name, str(event.data.status))))
        for seconds in ever_longer(1.5):
            with within(seconds + 1.5):
                outcome = await run(session, "a", timeout=seconds)
            if len(seen) > 1:
                break
            seen.clear()  # it ended before it could call anybody
        assert outcome.status == "timeout" or "[124]" in outcome.text, "it may just have the time to say so"
        assert [name for name, _ in seen] == ["b", "a"] and seen[0][1] in ("timeout", "interrupted")


async def test_c57_a_token_dies_with_its_run(bench: Bench) -> None:
    source = (
        'kept="$FORGE_WORKSPACE/kept"\n'
        'if [ -e "$kept" ]; then FORGE_CALL_TOKEN="$(cat "$kept")" forge call b; else forge call b; fi\n'
        'echo "[$?]"\necho "$FORGE_CALL_TOKEN" > "$kept"\n'
    )
    bench.tool("a", source, calls=["b"], zones={"workspace": "rw"})
    bench.tool("b", "echo b\n")
    assert bench.forge_here("tools", "activate", "a", "b", "--yes").code == 0
    async with bench.session(approval="approve_all") as session:
        assert (await session.call("a", {})).text == "b\n[0]\n"
        outcome = await session.call("a", {})
        assert streams(outcome)[0] == "[3]\n" and "does not come from a running tool" in streams(outcome)[1]
        token = (bench.workspace / "kept").read_text().strip()
        assert len(token) > 60 and token[:30] not in Path(session.journal.path).read_text()


# Sharing


def greeter(bench: Bench, name: str = "greet", **more: Any) -> Path:
    files = {"data/words.txt": "hi\n", "helper.py": "WORD = 'hello'\n"}
    folder = bench.python(name, "from helper import WORD\nprint(WORD)\n", files=files, **more)
    (folder / "run.bin").write_bytes(b"#!/bin/sh\n\xff\n")
    (folder / "run.bin").chmod(0o700)
    return folder


async def test_c58_an_export_is_the_same_bytes_and_an_import_the_same_tool(bench: Bench, elsewhere: Bench) -> None:
    folder = greeter(bench)
    assert bench.forge_here("tools", "activate", "greet", "--yes").code == 0
    one, two = bench.root / "one.tar.gz", bench.root / "two.tar.gz"
    assert bench.forge_here("tools", "export", "greet", "-o", str(one)).code == 0
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    assert bench.forge_here("tools", "export", "greet", "-o", str(two)).code == 0
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        members = archive.getmembers()
        assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members} == {
            (0, 0, 0, "", "")
        }
        assert [member.name for member in members] == sorted(member.name for member in members)
    said = elsewhere.forge_here("tools", "import", str(one))
    assert said.code == 0, said.err
    assert digest(elsewhere, "greet") == digest(bench, "greet")
    async with elsewhere.session() as session:
        assert offered(session) == []
        shown = json.loads(elsewhere.forge_here("tools", "show", "greet", "--json").out)
        assert shown["state"] == "draft", shown
        elsewhere.cards.yes = False
        assert (await run(session, "greet")).status == "approval_denied"
        assert f"import ({one})" in card_text(elsewhere.cards.last)
        elsewhere.cards.yes = True
        assert (await run(session, "greet")).text == "hello\n"


async def test_c58_as_a_folder_a_zip_and_under_another_name(bench: Bench, elsewhere: Bench) -> None:
    greeter(bench)
    assert bench.forge_here("tools", "export", "greet", "-o", str(bench.root / "out")).code == 0
    assert elsewhere.forge_here("tools", "import", str(bench.root / "out" / "greet")).code == 0
    assert digest(elsewhere, "greet") == digest(bench, "greet")
    packed = bench.root / "greet.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted((bench.root / "out" / "greet").rglob("*")):
            archive.write(path, path.relative_to(bench.root / "out"))
    said = elsewhere.forge_here("tools", "import", str(packed), "--as", "hello")
    assert said.code == 1 and "identical to custom tool 'greet'" in said.err, "but for its name it is one that is here"
    assert bench.forge_here("tools", "import", str(packed)).code == 1, "the name is taken"
    shutil.rmtree(elsewhere.tools / "greet")
    assert elsewhere.forge_here("tools", "import", str(packed), "--as", "hello").code == 0
    async with elsewhere.session() as session:
        assert (await run(session, "hello")).text == "hello\n"


async def test_c60_no_file_of_an_import_is_executed_whatever_it_is_called(bench: Bench, elsewhere: Bench) -> None:
    witness = bench.root / "witness"
    shell = f"#!/bin/sh\ntouch {witness}-sh\n"
    python = f"open('{witness}-py', 'w')\n"
    files: dict[str, str | bytes] = {
        "install.sh": shell,
        "postinstall": shell,
        "setup.py": python,
        "conftest.py": python,
        "sitecustomize.py": python,
        "package.json": json.dumps({"scripts": {"postinstall": f"touch {witness}-npm", "install": "sh install.sh"}}),
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n',
        "Makefile": f"all:\n\ttouch {witness}-make\n",
        "hooks/post-checkout": shell,
    }
    folder = elsewhere.python("evil", python, files=files)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o755)
    packed = elsewhere.root / "evil.tar.gz"
    assert elsewhere.forge_here("tools", "export", "evil", "-o", str(packed)).code == 0
    assert bench.forge_here("tools", "import", str(packed)).code == 0
    assert bench.forge_here("tools", "import", str(packed), "--as", "evil2").code == 1
    for words in (["list"], ["show", "evil"], ["doctor"], ["verify"], ["build", "evil"]):
        bench.forge_here("tools", *words)
    async with bench.session() as session:
        session.refresh()
        bench.cards.yes = False
        assert (await run(session, "evil")).status == "approval_denied"
    assert list(bench.root.glob("witness*")) == []


async def test_c62_a_skill_is_valid_and_gives_the_tool_back(bench: Bench, elsewhere: Bench) -> None:
    greeter(bench, "Greet_them", usage="Say it.\n\nLoudly: yes.", parameters=[parameter("who", required=True)])
    out = bench.root / "skills"
    said = bench.forge_here("tools", "export", "Greet_them", "--skill", "-o", str(out))
    assert said.code == 0, said.err
    (skill,) = out.iterdir()
    assert skill.name == "greet-them"
    validator = Path(sys.executable).parent / "agentskills"
    checked = subprocess.run([validator, "validate", skill], capture_output=True, text=True, timeout=PATIENCE)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    text = (skill / "SKILL.md").read_text()
    assert "forge-name: Greet_them" in text.replace('"', "").replace("'", "") and digest(bench, "Greet_them") in text
    assert elsewhere.forge_here("tools", "import", str(skill)).code == 0
    assert digest(elsewhere, "Greet_them") == digest(bench, "Greet_them")
    async with elsewhere.session() as session:
        assert offered(session) == []


async def test_c62_a_strangers_skill_becomes_a_draft_that_is_granted_nothing(bench: Bench) -> None:
    skill = bench.root / "say-hello"
    (skill / "scripts").mkdir(parents=True)
    (skill / "scripts" / "hello.sh").write_text("echo hello from a skill\n")
    (skill / "SKILL.md").write_text(
        "---\nname: say-hello\ndescription: Says hello to somebody\nallowed-tools: Bash(*) Write\n---\nRun it.\n"
    )
    said = bench.forge_here("tools", "import", str(skill))
    assert said.code == 0, said.err
    async with bench.session() as session:
        assert offered(session) == []
        assert (await run(session, "say-hello")).text == "hello from a skill\n"
        assert "zones: " in card_text(bench.cards.last) and "network: none" in card_text(bench.cards.last)
    (skill / "scripts" / "other.sh").write_text("echo other\n")
    said = bench.forge_here("tools", "import", str(skill), "--as", "second")
    assert said.code != 0 and "--entrypoint" in said.err
    assert bench.forge_here("tools", "import", str(skill), "--as", "second", "--entrypoint", "other.sh").code == 0
