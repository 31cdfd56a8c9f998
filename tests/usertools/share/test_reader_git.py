"""Real repositories: exactly the pinned commit, read as objects, and nothing that is not a plain file."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer, within
from tests.git_remotes import ssh_remote

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable
from golem_forge.usertools.folder import read_folder
from golem_forge.usertools.share import GitAccess, GitSource, archive, read_lock
from golem_forge.usertools.share.importer import ImportedTool, import_tool
from golem_forge.usertools.share.reader import GitCommand, GitOutputTooLarge, fetch_commit

from .git_server import git_server

FILE = frozenset({"file"})
MakeTool = Callable[..., Path]


def take(source: str, home: ForgeHome, environ: Mapping[str, str] = os.environ, **options: Any) -> ImportedTool:
    return import_tool(source, home=home, access=GitAccess(environ=environ, transports=FILE), **options)


def test_the_pinned_commit_is_imported_not_the_newest(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    folder = make_tool(at=repository.folder / "tools" / "greet")
    digest, pinned = read_folder(folder).digest, repository.commit()
    (folder / "greet.py").write_text("print('newer')\n")
    repository.commit()
    source = repository.source(pinned, "tools/greet")
    imported = take(source, home)
    assert imported.digest == digest == read_folder(home.path / "tools" / "greet").digest
    record = read_lock(home)["greet"]
    assert (record.source, record.commit, record.digest, record.version) == (source, pinned, digest, "1.2")


def test_attributes_of_the_repository_change_no_byte(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    """`git archive` or a checkout would leave files out, expand words and convert line endings."""
    marks = "words.txt export-ignore\nid.txt export-subst ident\n*.py text eol=crlf\n"
    folder = make_tool(at=repository.folder, **{"id.txt": "$Format:%H$ $Id$\n"})
    (folder / ".gitattributes").write_text(marks)
    commit = repository.commit()
    take(repository.source(commit), home)
    made = home.path / "tools" / "greet"
    assert (made / "id.txt").read_text() == "$Format:%H$ $Id$\n" and (made / "data" / "words.txt").is_file()
    assert b"\r" not in (made / "greet.py").read_bytes()


def test_a_tool_comes_by_the_persons_own_ssh(
    tmp_path: Path, home: ForgeHome, make_tool: MakeTool, repository: Any
) -> None:
    make_tool(at=repository.folder / "greet")
    commit = repository.commit()
    with ssh_remote(tmp_path) as there:
        (person := tmp_path / "person").mkdir()
        (person / ".gitconfig").write_text(there.settings)
        environ = {"PATH": os.environ["PATH"], "HOME": str(person), **there.environ}
        subprocess.run(
            ["git", "push", "-q", there.url, "HEAD:main"],
            cwd=repository.folder,
            env=environ,
            check=True,
            timeout=PATIENCE,
        )
        source = f"git+{there.url}@{commit}#greet"
        assert (
            import_tool(source, home=home, access=GitAccess(environ=environ)).name == "greet"
            and read_lock(home)["greet"].source == source
        )
        without = {name: value for name, value in environ.items() if name != "SSH_AUTH_SOCK"}
        with pytest.raises(SharingError, match="Forge uses your ssh agent"):
            import_tool(source, home=ForgeHome(tmp_path / "other"), access=GitAccess(environ=without))


def test_links_are_refused(home: ForgeHome, make_tool: MakeTool, repository: Any, leftovers: Any) -> None:
    (make_tool(at=repository.folder) / "passwords").symlink_to("/etc/passwd")
    with pytest.raises(Unusable) as refused:
        take(repository.source(repository.commit()), home)
    assert refused.value.diagnostic_code is DiagnosticCode.SYMLINK and "'passwords' is a link" in refused.value.message
    assert leftovers() == []


def test_a_link_is_no_way_to_a_folder(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    make_tool(at=repository.folder / "real")
    (repository.folder / "alias").symlink_to("real")
    with pytest.raises(SharingError, match="no folder 'alias'"):
        take(repository.source(repository.commit(), "alias"), home)


def test_submodules_are_refused(home: ForgeHome, make_tool: MakeTool, repository: Any, leftovers: Any) -> None:
    make_tool(at=repository.folder)
    first = repository.commit()
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{first},module")
    repository.run("commit", "-q", "-m", "with a submodule")
    with pytest.raises(SharingError, match="'module' is a submodule"):
        take(repository.source(repository.run("rev-parse", "HEAD")), home)
    assert leftovers() == []


def test_an_object_that_is_no_commit_is_refused(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    make_tool(at=repository.folder)
    repository.commit()
    repository.run("tag", "-a", "-m", "t", "v1")
    for name in ("v1", "HEAD^{tree}", "HEAD:greet.py"):
        with pytest.raises(SharingError):
            take(repository.source(repository.run("rev-parse", name)), home)


def test_a_commit_that_is_not_there_says_so(home: ForgeHome, repository: Any, leftovers: Any) -> None:
    repository.commit()
    with pytest.raises(SharingError, match="git could not do that"):
        take(repository.source("0" * 39 + "1"), home)
    assert leftovers() == []


@pytest.mark.parametrize(
    "files",
    [{f"f{number}": b"x" for number in range(200)}, {"zeros": bytes((1 << 20) + 1)}],
    ids=["too many", "too large"],
)
def test_too_many_and_too_large(
    home: ForgeHome,
    make_tool: MakeTool,
    repository: Any,
    leftovers: Any,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, "MAX_IMPORT_BYTES", 1 << 20)
    make_tool(at=repository.folder, **files)
    with pytest.raises(Unusable) as refused:
        take(repository.source(repository.commit()), home)
    assert refused.value.diagnostic_code is DiagnosticCode.TOO_LARGE and leftovers() == []


def test_a_tree_that_unfolds_without_end_stops_at_the_limit(home: ForgeHome, repository: Any) -> None:
    """Ten levels of ten equal folders: a few hundred bytes in the repository, ten thousand million files to list."""

    def made(kind: str, line: str) -> str:
        command = ["git", "mktree"] if kind == "tree" else ["git", "hash-object", "-w", "--stdin"]
        given = subprocess.run(command, cwd=repository.folder, input=line, capture_output=True, text=True, check=True)
        return given.stdout.strip()

    inner, mode, kind = made("blob", "x"), "100644", "blob"
    for _ in range(10):
        inner = made("tree", "".join(f"{mode} {kind} {inner}\td{number}\n" for number in range(10)))
        mode, kind = "40000", "tree"
    commit = repository.run("commit-tree", "-m", "bomb", inner)
    repository.run("update-ref", "refs/heads/main", commit)
    with within(5), pytest.raises(Unusable) as refused:
        take(repository.source(commit), home)
    assert refused.value.diagnostic_code is DiagnosticCode.TOO_LARGE


def test_the_file_transport_needs_to_be_named(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    make_tool(at=repository.folder)
    commit = repository.commit()
    with pytest.raises(SharingError, match=r"git\+https"):
        import_tool(repository.source(commit), home=home)
    source = GitSource(url=f"file://{repository.folder}", commit=commit)
    with pytest.raises(SharingError, match="not allowed"), fetch_commit(source, home):
        pass


def test_git_is_told_nothing_of_the_surroundings(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    make_tool(at=repository.folder)
    commit = repository.commit()
    odd = {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere", "GIT_OBJECT_DIRECTORY": "/nowhere", "SECRET": "canary"}
    odd |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "broken"}
    assert take(repository.source(commit), home, environ=dict(os.environ) | odd).commit == commit
    access = GitAccess(environ=dict(os.environ) | odd, transports=FILE)
    told = GitCommand(folder=home.path, access=access)._environment()
    assert "SECRET" not in told and told["GIT_DIR"] == str(home.path) and told["GIT_TERMINAL_PROMPT"] == "0"


def test_without_git_it_says_what_to_do(home: ForgeHome, repository: Any) -> None:
    with pytest.raises(SharingError, match="git was not found"):
        take(repository.source("1" * 40), home, environ={"PATH": "/nowhere"})


@pytest.fixture
def odd_git(tmp_path: Path) -> Callable[..., GitCommand]:
    """A git of our own: what it prints and how long it takes is bounded whoever it is."""

    def make(script: str, seconds: float = 30.0) -> GitCommand:
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / "git"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        return GitCommand(folder=tmp_path, access=GitAccess(environ=environ, transports=FILE), seconds=seconds)

    return make


def test_time_and_output_are_bounded_and_the_whole_group_ends(
    tmp_path: Path, odd_git: Callable[..., GitCommand]
) -> None:
    written = tmp_path / "child"
    for seconds in ever_longer(1.0):
        git = odd_git(f"sleep 60 & echo $! >{written}; sleep 60", seconds=seconds)
        with within(seconds + 1), pytest.raises(SharingError, match=f"within {seconds:g} seconds"):
            git.output(["fetch"], 100)
        if written.exists() and written.read_text():
            break
    child = int(written.read_text())
    until = time.monotonic() + PATIENCE
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < until, "a child of git lives on"
        time.sleep(0.02)
    for stream in ("1", "2"):
        with pytest.raises(GitOutputTooLarge):
            odd_git(f"head -c 200000 /dev/zero >&{stream}").output(["fetch"], 1000)


def test_what_git_says_is_harmless_and_without_credentials(odd_git: Callable[[str], GitCommand]) -> None:
    git = odd_git(r"printf 'fatal: \033[2J https://me:canary-4711@host.test/x denied\n' >&2; exit 128")
    with pytest.raises(SharingError) as refused:
        git.output(["fetch"], 100)
    assert "canary" not in refused.value.message and "\x1b" not in refused.value.message
    assert "denied" in refused.value.message


@pytest.mark.skipif(shutil.which("openssl") is None, reason="a certificate is made with openssl")
def test_over_https(home: ForgeHome, make_tool: MakeTool, repository: Any) -> None:
    digest = read_folder(make_tool(at=repository.folder / "sub")).digest
    commit = repository.commit()
    with git_server(repository.folder.parent) as (address, believed):
        source = f"git+{address}/repository/.git@{commit}#sub"
        with pytest.raises(SharingError, match="certificate"):
            import_tool(source, home=home, access=GitAccess(environ=os.environ))
        imported = import_tool(source, home=home, access=GitAccess(environ=os.environ | believed))
    assert (imported.digest, imported.commit, imported.source) == (digest, commit, source)
