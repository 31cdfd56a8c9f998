"""A session works in a clone of its own; a successor goes on from the last checkpoint and says what is lost."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ready import ReadyForge

from golem_forge.cli.run import RunArgs
from golem_forge.cli.team.background import new_session
from golem_forge.cli.team.batch import read_lines
from golem_forge.core.lazy_dataclass import replace
from golem_forge.team.rows import FINISHED
from golem_forge.team.session_workspace import SessionWorkspace, workspaces_folder

from .background import Program, until, write_call
from .test_workspace import git


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin")
    git("init", "-q", "-b", "main", ".", cwd=folder)
    (folder / "a.txt").write_text("one\n")
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "first", cwd=folder)
    return folder


@pytest.fixture
def origin(tmp_path: Path, made_once: Path) -> Path:
    return Path(shutil.copytree(made_once, tmp_path / "origin"))


def test_a_batch_gives_each_session_a_branch_and_leaves_the_checkout_alone(
    program: Program, tmp_path: Path, origin: Path
) -> None:
    (program.folder / "forge.yaml").write_text(
        "model: scripted:script.yaml\n"
        "sandbox: {zones: {work: {path: ./work, mode: rw, approval: {write: preApproved}}}}\n"
    )
    program.forge("trust", "--yes")
    program.play({"calls": [write_call("/work/a.txt", "two\n")]}, {"say": "done"})
    lines = [{"input": f"task {number}", "workspace": {"git": str(origin), "ref": "main"}} for number in (1, 2)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    program.start_runner()
    said = program.forge("batch", str(tmp_path / "tasks.jsonl"), "--no-runner")
    assert said.count("finished") == 2, said
    refs = git("for-each-ref", "--format=%(refname)", "refs/forge", cwd=origin).split()
    assert len(refs) == 2
    assert [git("show", f"{ref}:a.txt", cwd=origin) for ref in refs] == ["two", "two"]
    assert (origin / "a.txt").read_text() == "one\n"
    first = program.store().sessions()[0].id
    assert "-one\n+two\n" in program.forge("diff", first[:12])
    assert "modified  +1 -1  a.txt" in program.forge("diff", first[:12], "--stat")
    shutil.rmtree(workspaces_folder(program.home))
    assert "+two" in program.forge("diff", first[:12])  # the origin has it
    assert not (program.folder / "work" / "a.txt").exists()
    words = git("log", "-1", "--format=%B", f"refs/forge/{first}", cwd=origin)
    foreign = git("commit-tree", f"refs/forge/{first}^{{tree}}", "-p", "main", "-m", words, cwd=origin)
    git("update-ref", f"refs/forge/{first}", foreign, cwd=origin)  # what the journal does not name does not count
    assert "has another state of this session" in program.forge("diff", first[:12], code=1)
    assert "has another state of this session" in program.forge("apply", first[:12], "--yes", code=1, cwd=origin)
    git("update-ref", "-d", f"refs/forge/{first}", cwd=origin)
    for said in (
        program.forge("diff", first[:12], code=1),
        program.forge("apply", first[:12], "--yes", code=1, cwd=origin),
    ):
        assert f"refs/forge/{first} is missing" in said and "another state" not in said
    assert {row.state for row in program.store().sessions()} == {FINISHED}
    bad = program.forge("run", "--background", "--workspace", "ext::sh -c x", "go", code=2)
    assert "transport" in bad


FREE_WRITES = "sandbox: {zones: {work: {path: ./work, mode: rw, approval: {write: preApproved, delete: ask}}}}\n"


class TwoMachines:
    """A program and a store that runners with two homes share: their clones lie apart."""

    def __init__(self, folder: Path, origin: Path, ready: ReadyForge, capture: Any) -> None:
        url = f"sqlite://{folder}/shared/sessions.db"
        self.program = Program(folder / "program", folder / "home", url, ready, capture=capture, tools=False)
        self.other = folder / "other"
        self.origin = origin
        self.other.mkdir()
        (self.program.folder / "forge.yaml").write_text(f"model: scripted:script.yaml\n{FREE_WRITES}")
        (self.other / "config.yaml").write_bytes((self.program.home / "config.yaml").read_bytes())
        self.trust()

    def trust(self) -> None:
        for home in (self.program.home, self.other):
            self.program.forge("trust", "--yes", FORGE_HOME=str(home))

    def add_tools(self) -> None:
        self.program.add_tools()
        self.trust()

    def queue(self) -> str:
        return self.program.queue(workspace={"git": str(self.origin), "ref": "main", "zone": "work"})

    def tree(self, session: str) -> Path:
        return workspaces_folder(self.program.home) / session / "tree"

    def start(self, home: Path | None = None) -> Any:
        return self.program.start_quick_runner(sweep_s=0.5, FORGE_HOME=str(home or self.program.home))

    def dies(self, runner: Any) -> None:
        """With its lease: how long a successor waits for that is told elsewhere (test_runner)."""
        runner.kill()
        runner.wait()
        self.program.end_leases()

    def waits_for_an_answer(self, session: str) -> bool:
        """Parked, with its files at the origin: one that is held is not there yet. One that nobody has taken yet still
        says what it waited for before it was answered."""
        store = self.program.store()
        row = store.find(session)
        return bool(row.waits_for and not row.held and store.questions.rows())

    def kept(self, session: str, path: str) -> str:
        return git("show", f"refs/forge/{session}:{path}", cwd=self.origin)

    def told(self, session: str) -> list[str]:
        lines = [line.decode() for _, line in self.program.store().lines(session)]
        return [line for line in lines if "are lost" in line]


@pytest.fixture
def machines(
    tmp_path: Path, origin: Path, ready_forge: ReadyForge, capfd: pytest.CaptureFixture[str]
) -> Iterator[TwoMachines]:
    made = TwoMachines(tmp_path, origin, ready_forge, capfd)
    yield made
    made.program.close()


@pytest.mark.parametrize("where", [pytest.param("same machine", marks=pytest.mark.long), "other machine"])
def test_a_runner_killed_before_the_checkpoint(machines: TwoMachines, where: str) -> None:
    program = machines.program
    machines.add_tools()
    lost = ["write_file /work/b.txt, effect. Look at the files"] if where != "same machine" else []
    program.play(
        {"calls": [write_call("/work/b.txt", "new\n")]},
        {"calls": [{"tool": "effect", "args": {"name": "slow", "wait": 60}}]},
        {"calls": [write_call("/work/c.txt", "again\n")], "expect": ["may have run", *lost]},
        {"say": "done"},
    )
    session = machines.queue()
    first = machines.start()
    until(lambda: (machines.tree(session) / "effects.txt").exists(), or_else=program.logs)
    machines.dies(first)
    machines.start(machines.other if where == "other machine" else None)
    row = program.wait_for(session, "finished", "failed")
    assert row.state == FINISHED, row
    assert machines.kept(session, "c.txt") == "again"
    names = git("ls-tree", "--name-only", f"refs/forge/{session}", cwd=machines.origin).split()
    told = machines.told(session)
    if where == "same machine":
        assert names == ["a.txt", "b.txt", "c.txt", "effects.txt"] and told == []
    else:
        assert names == ["a.txt", "c.txt"]
        assert any('"type":"warning"' in line for line in told), "the person is told"
        assert any('"role":"results"' in line for line in told), "the model is told with its results"
        said = "Changes to files were lost with the machine that ran these calls: write_file /work/b.txt, effect."
        assert row.notice.splitlines()[-1] == said and said in program.forge("ps", "--all"), "it stays in the lists"
        assert said in program.forge("diff", session)
    for home in (program.home, machines.other):
        until(lambda home=home: session not in _names(home) or (where, home) == ("other machine", program.home))


def test_a_plain_repository_without_forge_yaml_is_cloned_too(program: Program, origin: Path) -> None:
    (program.folder / "forge.yaml").unlink(missing_ok=True)
    (program.folder / "main.worker").unlink(missing_ok=True)
    setting = SessionWorkspace({"git": str(origin), "ref": "", "zone": "workspace"}, program.home, "s1").open([])
    (program.folder / "words.yaml").write_text("turns: [{calls: [{tool: list_dir, args: {}}]}, {say: It is there.}]\n")
    said = program.forge("run", "--model", "scripted:words.yaml", "--json", "--set", setting, "-i", "hello")
    assert "It is there." in said and "a.txt" in said


def test_after_a_clean_turn_nothing_is_lost_and_an_old_clone_never_counts(machines: TwoMachines) -> None:
    """First, second and first machine again: its clone is older than what the second one did."""
    program = machines.program
    delete = {"tool": "delete_file", "args": {"path": "/work/a.txt"}}
    program.play(
        {"calls": [write_call("/work/b.txt", "first\n"), delete]},
        {"calls": [write_call("/work/b.txt", "second\n"), delete]},
        {"calls": [{"tool": "read_file", "args": {"path": "/work/b.txt"}}]},
        {"say": "done", "expect": ["second"]},
    )
    session = machines.queue()
    first = machines.start()
    until(lambda: machines.waits_for_an_answer(session), or_else=program.logs)
    first.kill()
    for home in (machines.other, program.home):
        [question] = program.store().questions.rows()
        program.store().questions.answer(question.id, {"approved": False}, "ada", "test")
        runner = machines.start(home)
        if home == machines.other:
            until(lambda: machines.waits_for_an_answer(session), or_else=program.logs)
            runner.kill()
    assert program.wait_for(session, "finished", "failed").state == FINISHED
    assert machines.kept(session, "b.txt") == "second"
    assert machines.told(session) == []
    answered = program.store().questions.rows(session=session, state="answered")
    assert len(answered) == 2, "an answer counts on every machine: nothing is asked again"


def test_a_push_that_fails_is_told_in_ps_and_journal_and_the_clone_stays(machines: TwoMachines) -> None:
    program, blocked = machines.program, machines.origin / ".git/refs/forge"
    blocked.write_text("no directory")
    program.play({"calls": [write_call("/work/b.txt", "new\n")]}, {"say": "done"})
    session = machines.queue()
    runner = machines.start()
    program.wait_for(session, "finished")
    said = program.forge("ps", "--all")
    assert f"! {session[:12]}: The origin does not have the last checkpoint: git could not push" in said
    assert str(machines.origin) not in said
    shown = [line for _, line in program.store().lines(session) if b"does not have the last checkpoint" in line]
    assert any(b'"type":"warning"' in line for line in shown)
    assert "+new" in program.forge("diff", session[:12]), "this machine has it"
    runner.send_signal(signal.SIGTERM)
    runner.wait()
    assert session in _names(program.home)
    blocked.unlink()
    stranger = workspaces_folder(program.home) / ("5" * 32)
    stranger.mkdir()
    machines.start()
    until(lambda: session not in _names(program.home))
    assert machines.kept(session, "b.txt") == "new"
    assert stranger.exists(), "another store's, for all that is known"


def test_files_that_cannot_be_checkpointed_are_told_and_stay(machines: TwoMachines) -> None:
    program = machines.program
    machines.add_tools()
    program.play({"calls": [{"tool": "effect", "args": {"name": "slow", "gate": "acted"}}]}, {"say": "done"})
    session = machines.queue()
    machines.start()
    until(lambda: (machines.tree(session) / "effects.txt").exists(), or_else=program.logs)
    shutil.rmtree(machines.tree(session).with_name("repository"))
    (machines.tree(session) / "acted").touch()
    program.wait_for(session, "finished")
    rows = json.loads(program.forge("ps", "--all", "--json"))
    assert rows[0]["notice"].startswith("The files are not checkpointed: git could not")
    assert str(machines.tree(session).parent) not in rows[0]["notice"]
    assert (machines.tree(session) / "effects.txt").exists()


def test_a_runner_that_drains_checkpoints_what_it_hands_over(machines: TwoMachines) -> None:
    program = machines.program
    machines.add_tools()
    program.play(
        {"calls": [write_call("/work/b.txt", "new\n")]},
        {"calls": [{"tool": "effect", "args": {"name": "slow", "gate": "acted"}}]},
        {"calls": [{"tool": "read_file", "args": {"path": "/work/effects.txt"}}]},
        {"say": "done", "expect": ["slow"]},
    )
    session = machines.queue()
    first = machines.start()
    until(lambda: (machines.tree(session) / "effects.txt").exists(), or_else=program.logs)
    first.send_signal(signal.SIGTERM)
    until(lambda: [each for each in program.store().runners.seen() if each["draining"]])
    (machines.tree(session) / "acted").touch()
    first.wait()
    machines.start(machines.other)
    assert program.wait_for(session, "finished", "failed").state == FINISHED
    assert machines.told(session) == []
    assert machines.kept(session, "effects.txt") == "slow"


def test_which_repository_counts(program: Program, origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag or the batch's line, then `--set`, then a trusted forge.yaml; a stranger's is refused."""
    (program.folder / "main.worker").write_text(
        "---\nname: main\ndescription: d\nmode: single\nsandbox: {zones: [{name: work, mode: rw}]}\n"
        "toolsets: {filesystem: {}}\n---\nDo it.\n"
    )
    text = (program.folder / "forge.yaml").read_text()
    (program.folder / "forge.yaml").write_text(f"{text}workspace: {{git: ../origin, ref: main}}\n")
    start = ("run", "--background", "--no-runner")
    refused = program.forge(*start, "go", code=2)
    assert "forge.yaml:3: workspace: this program is not trusted" in refused and "forge trust" in refused

    def queued(*words: str) -> Any:
        program.forge(*start, *words, "go")
        store = program.store()
        return store.facts(store.sessions(limit=1)[0].id).get("workspace")

    assert queued("--workspace", f"{origin}@v1") == {"git": str(origin), "ref": "v1", "zone": "work"}
    assert queued("--workspace", "none") is None
    program.forge("trust", "--yes")
    own = {"git": str(origin), "ref": "main", "zone": "work"}
    assert queued() == own
    assert queued("--set", "workspace.ref=side") == own | {"ref": "side"}
    assert queued("--set", "workspace.ref=side", "--workspace", "https://git.test/x") == {
        "git": "https://git.test/x", "ref": "", "zone": "work",
    }  # fmt: skip
    assert queued("--workspace", "none") is None
    lines = ({"input": "a"}, {"input": "b", "workspace": None}, {"input": "c", "workspace": {"git": "/other"}})
    monkeypatch.setenv("FORGE_HOME", str(program.home))
    asked = RunArgs(directory=program.folder, background=True, input="go")
    read, problems = read_lines("\n".join(map(json.dumps, lines)), program.folder)
    assert problems == []
    batch = [new_session(replace(asked, workspace=line.workspace)).facts.get("workspace") for line in read]
    assert batch == [own, None, {"git": "/other", "ref": "", "zone": "work"}]
    (program.folder / "forge.yaml").write_text(f"{text}workspace: {{git: 'ext::sh -c x', reff: main}}\n")
    assert "workspace.reff" in program.forge(*start, "go", code=2)
    (program.folder / "forge.yaml").write_text(f"{text}workspace: {{git: 'ext::sh -c x'}}\n")
    program.forge("trust", "--yes")
    assert "forge.yaml:3: workspace.git: Forge does not use transport helpers" in program.forge(*start, "go", code=2)


def test_prune_deletes_the_refs_and_says_which_stay(program: Program, tmp_path: Path, origin: Path) -> None:
    store = program.store()
    gone = {"git": str(tmp_path / "gone"), "ref": "main"}
    here = {"git": str(origin), "ref": "main"}
    sessions: dict[str, str] = {}
    cases: dict[str, dict[str, Any]] = {
        "old": {"workspace": here},
        "new": {"workspace": here},
        "gone": {"workspace": gone},
        "elsewhere": {"workspace": here, "host": "build7"},
        "hostile": {"workspace": {"git": "ext::sh -c 'touch pwned'"}},
        "plain": {},
    }
    for name, facts in cases.items():
        sessions[name] = program.queue(**facts)
        git("update-ref", f"refs/forge/{sessions[name]}", "HEAD", cwd=origin)
        (workspaces_folder(program.home) / sessions[name]).mkdir(parents=True)
        if name != "new":
            store.stop(sessions[name])
    with store.database.transaction() as connection:
        connection.execute("UPDATE sessions SET ended = ended - 2 WHERE ended > 0")
    said = program.forge("store", "prune", "--set", "store.retention=1s")
    assert "5 sessions deleted" in said
    left = git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/forge", cwd=origin).split()
    assert sessions["old"] not in left and sessions["new"] in left
    stays = {line.split()[0]: line for line in said.splitlines() if "stays" in line}
    assert stays.keys() == {sessions[name][:12] for name in ("gone", "elsewhere", "hostile")}
    assert "a path on build7" in stays[sessions["elsewhere"][:12]]
    assert "transport" in stays[sessions["hostile"][:12]] and not (program.folder / "pwned").exists()
    assert str(tmp_path) not in said
    assert _names(program.home) == sorted([sessions["new"], sessions["plain"]])


def _names(home: Path) -> list[str]:
    folder = workspaces_folder(home)
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_successor_without_the_clone_says_which_changes_are_lost(tmp_path: Path, origin: Path) -> None:
    home, session = tmp_path / "home", "ab" * 16
    home.mkdir()
    facts = {"git": str(origin), "ref": "main", "zone": "work"}
    records: list[dict[str, Any]] = []
    first = SessionWorkspace(facts, home, session)
    setting = first.open(records)
    assert setting == f"sandbox.zones.work.path={json.dumps(str(workspaces_folder(home) / session / 'tree'))}"
    assert first.clone is not None
    (first.clone.tree / "a.txt").write_text("two\n")
    records += [_ran("c1", "/work/a.txt")]
    made = first.checkpoint("a turn")
    assert made.pushed
    records += [{"type": "checkpoint", "commit": made.commit}]
    (first.clone.tree / "b.txt").write_text("three\n")
    records += [_ran("c2", "/work/b.txt")]

    here = SessionWorkspace(facts, home, session)
    here.open(records)
    assert here.lost_note == "" and here.clone is not None and (here.clone.tree / "b.txt").exists()

    shutil.rmtree(workspaces_folder(home))  # the machine is gone
    there = SessionWorkspace(facts, home, session)
    there.open(records)
    assert there.clone is not None and (there.clone.tree / "a.txt").read_text() == "two\n"
    assert not (there.clone.tree / "b.txt").exists()
    assert there.lost == ["write_file /work/b.txt"] and "are lost: write_file /work/b.txt" in there.lost_note


def _ran(call: str, path: str) -> dict[str, Any]:
    return {"type": "begun", "call": call, "tool": "write_file", "args": {"path": path, "content": "x"}}
