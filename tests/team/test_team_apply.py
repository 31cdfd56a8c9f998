"""`forge apply`: what a session changed comes into the checkout as one asked write, all of it or nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.deadlines import PATIENCE
from tests.ready import ReadyForge, run_in_process

from golem_forge.team.changes import changes_from_json
from golem_forge.team.checkpoint import checkpoint
from golem_forge.team.people import Role, add_person
from golem_forge.team.rows import NewSession
from golem_forge.team.session_workspace import workspaces_folder
from golem_forge.team.store import Store
from golem_forge.team.workspace import Clone, Workspace, WorkspaceError, make_clone, open_clone, run_local

from .test_workspace import git

FILES = {"a.txt": "one\ntwo\nthree\nfour\nfive\n", "src/app.py": "print(1)\n", "run.sh": "#!/bin/sh\n", "gone": "old\n"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Desk:
    """A person's checkout of a repository, and a session of the store that worked in a clone of it."""

    def __init__(self, folder: Path, ready: ReadyForge, session: str = "", capture: Any = None) -> None:
        """`session`: that of a desk which stood in the folder before. `capture`: the fixture `capfd`."""
        self.home, self.origin, self.checkout = folder / "home", folder / "origin", folder / "checkout"
        self.ready = ready
        self.capture = capture
        workspace = Workspace(git=str(self.origin), ref="main")
        if not session:
            self.home.mkdir()
            self.origin.mkdir()
            git("init", "-q", "-b", "main", ".", cwd=self.origin)
            write(self.origin, FILES)
            git("add", "-A", cwd=self.origin)
            git("commit", "-q", "-m", "first", cwd=self.origin)
            git("clone", "-q", self.origin, self.checkout, cwd=folder)
        self.store = Store.open("sqlite", self.home, create=True)
        facts = {"workspace": {"git": workspace.git, "ref": workspace.ref}}
        self.session = session or self.store.queue(NewSession(facts=facts, input="go", person="ada"))
        place = workspaces_folder(self.home) / self.session
        clone = open_clone(workspace, place, session) if session else make_clone(workspace, place, self.session)
        assert clone is not None
        self.clone: Clone = clone

    def works(self, change: Callable[[Path], object]) -> None:
        """What the session did, up to a checkpoint."""
        change(self.clone.tree)
        assert checkpoint(self.clone, "turn").pushed

    def apply(self, *words: str, code: int = 0, cwd: Path | None = None) -> str:
        env = {**os.environ, "FORGE_HOME": str(self.home)}
        done = run_in_process(self.capture, "apply", self.session[:12], *words, cwd=cwd or self.checkout, env=env)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def refused(self, *words: str) -> str:
        """The reason; the checkout is as it was."""
        before = self.files()
        said = self.apply(*(words or ("--yes",)), code=1)
        assert self.files() == before
        return said

    def files(self) -> dict[str, str]:
        found = (path for path in self.checkout.rglob("*") if path.is_file() or path.is_symlink())
        return {str(path.relative_to(self.checkout)): f"{path.lstat().st_mode:o} {_text(path)}" for path in found}

    def status(self) -> set[str]:
        return set(git("status", "--short", "-uall", cwd=self.checkout).split("\n"))


def _text(path: Path) -> str:
    return os.readlink(path) if path.is_symlink() else path.read_bytes().hex()


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory, ready_forge: ReadyForge) -> Desk:
    """What every test begins with; git makes it once. Its store and checkout name the folder, so each test's copy
    stands where it was made."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))  # git reads nothing of this machine's person
        made = Desk(folder, ready_forge)
    made.store.close()
    folder.rename(folder.with_name(f"{folder.name}.kept"))
    return made


@pytest.fixture
def desk(made_once: Desk, ready_forge: ReadyForge, capfd: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    folder = made_once.home.parent
    shutil.copytree(folder.with_name(f"{folder.name}.kept"), folder)
    made = Desk(folder, ready_forge, made_once.session, capfd)
    yield made
    made.store.close()
    shutil.rmtree(folder)


def test_it_shows_the_difference_asks_once_and_writes_everything(desk: Desk) -> None:
    def change(tree: Path) -> None:
        write(tree, {"a.txt": "ONE\ntwo\nthree\nfour\nfive\n", "new/tool.sh": "#!/bin/sh\necho\n"})
        (tree / "new/tool.sh").chmod(0o755)
        (tree / "run.sh").chmod(0o755)
        (tree / "gone").unlink()
        (tree / "src/app.py").rename(tree / "src/main.py")

    desk.works(change)
    write(desk.checkout, {"a.txt": "one\ntwo\nthree\nfour\nFIVE\n"})
    git("commit", "-qam", "mine", cwd=desk.checkout)
    before = desk.files()
    said = desk.apply(code=3)  # nobody can be asked
    assert "Forge cannot ask you here" in said and "-one\n+ONE\n" in said and "--yes" in said
    assert desk.files() == before

    said = desk.apply("--yes", cwd=desk.checkout / "src")
    assert "rename from /workspace/src/app.py" in said and "Patched 5 files" in said
    for note in ("new/tool.sh becomes executable", "run.sh becomes executable", "a.txt has other changes"):
        assert note in said
    assert (desk.checkout / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nFIVE\n"
    assert desk.status() == {"M a.txt", " D gone", " M run.sh", " D src/app.py", "?? new/tool.sh", "?? src/main.py"}
    assert os.access(desk.checkout / "new/tool.sh", os.X_OK) and os.access(desk.checkout / "run.sh", os.X_OK)
    assert "nothing to apply" in desk.apply()

    env = {**os.environ, "FORGE_HOME": str(desk.home)}
    log = run_in_process(desk.capture, "log", cwd=desk.checkout, env=env).stdout
    assert "approval_denied  apply_changes" in log and "success          apply_changes" in log
    assert "answered by person" in log
    assert run_in_process(desk.capture, "log", "verify", cwd=desk.checkout, env=env).returncode == 0


def test_at_a_terminal_it_asks_once_and_enter_means_no(desk: Desk) -> None:
    desk.works(lambda tree: write(tree, {"a.txt": "ONE\n"}))
    env = {**os.environ, "FORGE_HOME": str(desk.home), "TERM": "dumb"}
    for key, code in (("n", 3), ("", 3), ("y", 0)):
        child = desk.ready.expecting(
            ["apply", desk.session[:12]], cwd=str(desk.checkout), env=env, timeout=PATIENCE, encoding="utf-8"
        )
        child.expect_exact("+ONE")
        child.expect(r"Change this file in .*checkout\? \[y/N\] ")
        child.sendline(key)
        child.expect_exact("Patched 1 file" if key == "y" else "approval_denied")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == code
        assert ((desk.checkout / "a.txt").read_text() == "ONE\n") == (key == "y")


def test_what_is_not_committed_stays_and_all_problems_are_named(desk: Desk) -> None:
    desk.works(lambda tree: write(tree, {"a.txt": "ONE\n", "src/app.py": "print(2)\n", "fresh": "x", "ok": "x"}))
    write(desk.checkout, {"a.txt": "mine\n", "fresh": "another", "other": "no part of it"})
    said = desk.refused()
    assert "nothing was written" in said
    assert "a.txt: it has changes that are not committed" in said
    assert "fresh: the session and the checkout both added it" in said
    assert "src/app.py" not in said and "other" not in said
    git("add", "a.txt", cwd=desk.checkout)
    assert "a.txt: it has changes that are not committed" in desk.refused()
    git("commit", "-qm", "mine", cwd=desk.checkout)
    assert "a.txt: the session and the checkout changed the same lines" in desk.refused()


def test_another_repository_and_no_repository_are_refused(desk: Desk, tmp_path: Path) -> None:
    desk.works(lambda tree: write(tree, {"a.txt": "ONE\n"}))
    other = tmp_path / "other"
    other.mkdir()
    assert "in no git checkout" in desk.apply("--yes", code=1, cwd=other)
    git("init", "-q", "-b", "main", ".", cwd=other)
    write(other, FILES)
    git("add", "-A", cwd=other)
    git("commit", "-q", "-m", "the same files", cwd=other)
    assert "another repository" in desk.apply("--yes", code=1, cwd=other)
    git("worktree", "add", "-q", "-b", "side", tmp_path / "side", cwd=desk.checkout)
    git("pack-refs", "--all", cwd=desk.checkout)
    assert "Patched 1 file" in desk.apply("--yes", cwd=tmp_path / "side")
    assert (tmp_path / "side" / "a.txt").read_text() == "ONE\n"
    assert desk.status() == {""}


def test_a_protected_path_stops_all_of_it(desk: Desk) -> None:
    paths = ("forge.yaml", ".forge/rules.yaml", "deep/main.worker", ".vscode/tasks.json", ".gitmodules")
    desk.works(lambda tree: write(tree, dict.fromkeys((*paths, ".env", "a.txt"), "x")))
    said = desk.refused().splitlines()
    for path, why in (*((path, "protects this path") for path in paths), (".env", "may hold secrets")):
        assert [line for line in said if f"{path}: " in line and why in line], (path, said)


def test_git_directories_links_and_odd_trees_are_never_written(desk: Desk, tmp_path: Path) -> None:
    """A ref at the origin that no checkpoint of Forge would make."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (desk.checkout / "docs").symlink_to(outside)
    blob = run_local(desk.clone, ("hash-object", "-w", "--stdin"), "t", stdin=b"#!/bin/sh\n").output.decode().strip()
    names = ("../evil", ".git/hooks/post-checkout", "GIT~1/config", "docs/page", "a/../../evil")
    tree_of = {name: _tree(desk.clone, name, blob) for name in names}
    base = desk.clone.base
    for name, tree in tree_of.items():
        message = f"x\n\nForge-Session: {desk.session}\nForge-Base: {base}\n".encode()
        who = {f"GIT_{role}_{part}": "x" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        made = run_local(desk.clone, ("commit-tree", tree, "-p", base), "t", stdin=message, more=who)
        run_local(desk.clone, ("update-ref", desk.clone.ref, made.output.decode().strip()), "t")
        said = desk.refused()
        assert "does not write a file with this name" in said or "a link or a file of the checkout" in said, (
            name,
            said,
        )
    assert not list(outside.iterdir()) and not (desk.checkout.parent / "evil").exists()
    assert not (desk.checkout / ".git/hooks/post-checkout").exists()


def _tree(clone: Clone, path: str, blob: str) -> str:
    """A tree with the base's files and one more, written as bytes: git's own commands refuse such names."""
    *above, name = path.split("/")
    kept = run_local(clone, ("ls-tree", "-z", clone.base), "t").output.split(b"\0")[:-1]
    entry = b"100644 %s\0" % name.encode() + bytes.fromhex(blob)
    for folder in reversed(above):
        inner = _write_tree(clone, entry)
        entry = b"40000 %s\0" % folder.encode() + bytes.fromhex(inner)
    rows = []
    for row in kept:
        facts, _, kept_name = row.partition(b"\t")
        mode, _, id = facts.split()
        rows.append((kept_name, b"%s %s\0" % (mode.lstrip(b"0"), kept_name) + bytes.fromhex(id.decode())))
    rows.append(((above or [name])[0].encode(), entry))
    return _write_tree(clone, b"".join(row for _, row in sorted(rows)))


def _write_tree(clone: Clone, content: bytes) -> str:
    words = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
    return run_local(clone, words, "t", stdin=content).output.decode().strip()


def test_nothing_of_the_checkouts_git_runs(desk: Desk, tmp_path: Path) -> None:
    desk.works(lambda tree: write(tree, {"a.txt": "ONE\n", "src/app.py": "print(2)\n"}))
    mark = f"touch {tmp_path}/pwned; cat"
    config = desk.checkout / ".git/config"
    config.write_text(
        config.read_text() + f'[core]\n\tfsmonitor = "{mark}"\n\thooksPath = hooks\n\tsshCommand = "{mark}"\n'
        f'[filter "x"]\n\tclean = "{mark}"\n\tsmudge = "{mark}"\n\tprocess = "{mark}"\n\trequired = true\n'
        f'[diff "x"]\n\ttextconv = "{mark}"\n\tcommand = "{mark}"\n[merge "x"]\n\tdriver = "{mark}"\n'
        f'[alias]\n\tls-tree = "!{mark}"\n[include]\n\tpath = more\n[extensions]\n\tpartialClone = origin\n'
    )
    (desk.checkout / ".git/info").mkdir(exist_ok=True)
    (desk.checkout / ".git/info/attributes").write_text("* filter=x diff=x merge=x\n")
    (desk.checkout / "hooks").mkdir()
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "pre-applypatch"):
        (desk.checkout / "hooks" / name).write_text(f"#!/bin/sh\n{mark}\n")
        (desk.checkout / "hooks" / name).chmod(0o755)
    assert "Patched 2 files" in desk.apply("--yes")
    assert (desk.checkout / "a.txt").read_text() == "ONE\n"
    assert not (tmp_path / "pwned").exists()


def test_a_file_that_cannot_be_written_takes_all_back(desk: Desk) -> None:
    desk.works(lambda tree: write(tree, {"a.txt": "ONE\n", "deep/new.txt": "x", "src/app.py": "print(2)\n"}))
    (desk.checkout / "deep").write_text("a file where a directory is needed")
    assert "deep/new.txt" in desk.refused()


def test_rules_and_zones_count_and_none_answers_for_the_person(desk: Desk) -> None:
    desk.works(lambda tree: write(tree, {"a.txt": "ONE\n", "src/app.py": "print(2)\n"}))
    rules = desk.home / "rules.yaml"
    rules.write_text("rules:\n  - {path: '/workspace/**', access: [write, delete], verdict: preApproved}\n")
    assert "Forge cannot ask you here" in desk.apply(code=3)
    before = desk.files()
    blocked = "access: [write, delete], verdict: blocked, reason: never"
    rules.write_text(f"rules:\n  - {{path: '/workspace/src/**', {blocked}}}\n")
    assert "policy_denied" in desk.apply("--yes", code=3)
    (desk.checkout / "forge.yaml").write_text("sandbox: {zones: {code: {path: ./src}}}\n")
    rules.write_text(f"rules:\n  - {{path: '/code/**', {blocked}}}\n")  # the same file, as the program calls it
    assert "policy_denied" in desk.apply("--yes", code=3)
    rules.unlink()
    (desk.checkout / "forge.yaml").write_text("sandbox: {zones: {code: {path: ./src, mode: ro}}}\n")
    assert "policy_denied" in desk.apply("--yes", code=3)
    (desk.checkout / "forge.yaml").unlink()
    assert desk.files() == before


def test_through_a_teams_server_with_the_persons_role(desk: Desk, tmp_path: Path) -> None:
    """The person's machine has neither the database nor the repository's address: the server reads both."""

    def change(tree: Path) -> None:
        write(tree, {"a.txt": "ONE\ntwo\nthree\nfour\nfive\n", "new.bin": "x\0y", "src/app.py": "print(2)\n"})
        (tree / "gone").unlink()

    desk.works(change)
    env = {**os.environ, "FORGE_HOME": str(desk.home), "MY_API_KEY": "s3cret-of-the-server"}
    tokens = {role: add_person(desk.store, role, Role(role)) for role in ("viewer", "operator")}
    server = desk.ready.start(["forge", "web", "--team", "--no-open"], cwd=tmp_path, env=env)
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert url
        laptop = tmp_path / "laptop"
        laptop.mkdir()
        (laptop / "config.yaml").write_text(f"store: {{url: '{url[0]}'}}\n")

        def forge(role: str, *words: str, code: int = 0) -> str:
            env = {**os.environ, "FORGE_HOME": str(laptop), "FORGE_TEAM_TOKEN": tokens[role]}
            done = run_in_process(desk.capture, *words, cwd=desk.checkout, env=env)
            assert done.returncode == code, (words, done.stdout, done.stderr)
            return done.stdout + done.stderr

        assert "-one\n+ONE\n" in forge("viewer", "diff", desk.session)
        assert "modified  +1 -1  a.txt" in forge("viewer", "diff", desk.session, "--stat")
        before = desk.files()
        refused = forge("viewer", "apply", desk.session, "--yes", code=3)
        assert "viewer is viewer here and may not apply" in refused and desk.files() == before
        assert "Patched 4 files" in forge("operator", "apply", desk.session[:12], "--yes")
        assert desk.status() == {"M a.txt", " D gone", " M src/app.py", "?? new.bin"}
        assert "apply_changes" in forge("operator", "log"), "the write is recorded in the home of whoever wrote"
        assert not workspaces_folder(laptop).exists()
        desk.session = desk.store.queue(NewSession(facts={}, input="go", person="ada"))
        assert "has no git workspace" in forge("viewer", "diff", desk.session, code=1)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)
    assert [(each["person"], each["action"]) for each in desk.store.accounts.refusals()] == [("viewer", "apply")]


@pytest.mark.parametrize(
    "lie",
    [
        {"files": None}, {"files": [{"path": 1, "status": "added"}]}, {"files": [{"nothing": 1}]}, {"diff": 5},
        {"cut": "no"}, {"differences": [["A"]]}, {"differences": 7}, {"base": "--upload-pack=x"}, {"commit": "HEAD"},
        {"differences": [["A", "000000", "100755", "0" * 40, "1" * 40, "x", "x"]]},
        {"differences": [["A", "000000", "104755", "0" * 40, "0" * 40, "x", "x"]]},
        {"blobs": {"1" * 40: "eA=="}}, {"blobs": {"1" * 40: "%%"}}, {"blobs": [1]},
    ],
)  # fmt: skip
def test_a_server_that_lies_about_changes_is_not_believed(lie: dict[str, Any]) -> None:
    true = {"files": [], "diff": "", "cut": False, "base": "a" * 40, "commit": "b" * 40, "differences": [], "blobs": {}}
    assert changes_from_json(true).contents is not None
    with pytest.raises(WorkspaceError, match="gave no changes that Forge can read"):
        changes_from_json({**true, **lie})


def test_a_session_without_a_workspace_has_nothing_to_apply(desk: Desk) -> None:
    desk.session = desk.store.queue(NewSession(facts={}, input="go", person="ada"))
    assert "has no git workspace" in desk.apply("--yes", code=1)
