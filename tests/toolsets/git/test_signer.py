"""Commits and tags of commands are signed with the person's key, after a question; the key stays outside."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.git_remotes import git
from tests.tables import table
from tests.toolsets.conftest import Bench

from golem_forge.core.decisions import Status
from golem_forge.sandbox.git.remotes import RemoteRefused
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets.exec import ExecToolset
from golem_forge.toolsets.git import git_sign_tool
from golem_forge.toolsets.git.signer import Identity, read_signable


@dataclass
class Signer:
    root: Path
    home: Path
    bench: Bench
    asked: list[Any] = field(default_factory=list)
    answer: Callable[[Any], Any] = lambda request: {"approved": True}

    def git(self, *words: str) -> str:
        return git(self.root, *words, home=self.home)

    @property
    def questions(self) -> list[Any]:
        return [request for request in self.asked if request.tool == "git:sign"]


@pytest.fixture
def signer(benches: Callable[..., Bench], workspace: Path, own_home: Path, tmp_path: Path) -> Signer:
    """A repository of Ada's; she has an ssh key, and her settings sign every commit with it."""
    key = tmp_path / "keys/id"
    key.parent.mkdir(mode=0o700)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", key], check=True, timeout=PATIENCE
    )
    allowed = tmp_path / "keys/allowed"
    allowed.write_text(f"ada@example.test {Path(f'{key}.pub').read_text()}")
    settings = (
        "[user]\n\tname = Ada\n\temail = ada@example.test\n"
        f"\tsigningKey = {key}\n[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = true\n"
        f'[gpg "ssh"]\n\tallowedSignersFile = {allowed}\n'
    )
    for home in (own_home, tmp_path / "home"):
        (home / ".gitconfig").write_text(settings)

    def ask(request: Any) -> Any:
        made.asked.append(request)
        return made.answer(request)

    bench = benches(*ExecToolset().get_tools(ToolsetContext()), git_sign_tool(), ask=ask)
    made = Signer(workspace, own_home, bench)
    made.git("init", "-q", "-b", "main", ".")
    (workspace / "a.txt").write_text("one\n")
    made.git("add", ".")
    made.git("-c", "commit.gpgSign=false", "commit", "-q", "-m", "first")
    return made


async def test_a_commit_is_signed_after_a_question_that_shows_it(signer: Signer) -> None:
    outcome = await signer.bench.cmd("git commit -q --allow-empty -m 'by a command' && git log -1 --format=%s")
    assert outcome.status is Status.SUCCESS, outcome.text
    (question,) = signer.questions
    assert "by a command" in question.payload and "committer Ada <ada@example.test>" in question.payload
    assert question.effects == ("exec sign commit by a command",)
    assert signer.git("log", "-1", "--format=%G? %GS %s") == "G ada@example.test by a command"


async def test_one_answer_may_hold_for_the_session(signer: Signer) -> None:
    def answer(request: Any) -> Any:
        kept = [choice.id for choice in request.choices if "sign commits and tags" in choice.label]
        return {"approved": True, **({"choice": kept[0]} if request.tool == "git:sign" else {})}

    signer.answer = answer
    script = "for n in 1 2 3; do git commit -q --allow-empty -m $n || exit 1; done; git tag -s -m 'a tag' v1"
    outcome = await signer.bench.cmd(script)
    assert outcome.status is Status.SUCCESS, outcome.text
    assert len(signer.questions) == 1
    assert all("always" not in choice.scope for choice in signer.questions[0].choices)
    assert signer.git("log", "-3", "--format=%G?") == "G\nG\nG"
    assert (
        "Good"
        in subprocess.run(
            ["git", "tag", "-v", "v1"],
            cwd=signer.root,
            env={"PATH": os.environ["PATH"], "HOME": str(signer.home)},
            capture_output=True,
            text=True,
        ).stderr
    )


async def test_a_rebase_signs_what_it_makes_anew(signer: Signer) -> None:
    signer.git("checkout", "-q", "-b", "work")
    for name in ("x", "y"):
        (signer.root / name).write_text(name)
        signer.git("add", name)
        signer.git("-c", "commit.gpgSign=false", "commit", "-q", "-m", name)
    signer.git("checkout", "-q", "main")
    signer.git("-c", "commit.gpgSign=false", "commit", "-q", "--allow-empty", "-m", "on main")
    signer.git("checkout", "-q", "work")
    outcome = await signer.bench.cmd("git rebase -q main")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert signer.git("log", "-2", "--format=%G? %s") == "G y\nG x"


async def test_a_no_makes_no_commit_and_says_why(signer: Signer) -> None:
    signer.answer = lambda request: {"approved": request.tool != "git:sign", "reason": "not this one"}
    outcome = await signer.bench.cmd("git commit --allow-empty -m unwanted")
    assert outcome.status is Status.EXECUTION_FAILED
    assert "Forge did not sign it: Denied by the user" in outcome.text
    assert signer.git("log", "-1", "--format=%s") == "first"


@table(
    ("script", "why"),
    [
        ("GIT_COMMITTER_EMAIL=eve@example.test git commit --allow-empty -m x", "its committer is not the user"),
        ("git -c user.name=Eve commit --allow-empty -m x", "its committer is not the user"),
        ("echo 'I owe you 100' | $(git config gpg.program) --status-fd=2 -bsau x", "it is no commit and no tag"),
        (
            "t=$(git write-tree); printf 'tree %s\\nparent 1111111111111111111111111111111111111111\\nauthor Ada "
            "<ada@example.test> 1 +0000\\ncommitter Ada <ada@example.test> 1 +0000\\n\\nx\\n' $t > /tmp/b; "
            "$(git config gpg.ssh.program) -Y sign -n git -f k /tmp/b",
            "does not have yet",
        ),
    ],
)
async def test_nothing_else_is_signed(signer: Signer, script: str, why: str) -> None:
    outcome = await signer.bench.cmd(script)
    assert outcome.status is Status.EXECUTION_FAILED and why in outcome.text, outcome.text
    assert signer.questions == []


async def test_the_key_and_the_agent_are_nowhere_inside(
    signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/canary/agent.socket")
    private = (tmp_path / "keys/id").read_text().splitlines()[1]
    hunt = "env; git config --list; cat /forge/sign/* 2>/dev/null; ls -laR /forge"
    hunt += "; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    outcome = await signer.bench.cmd(f"git commit -q --allow-empty -m x; {hunt}; true", max_output_tokens=50_000)
    assert outcome.status is Status.SUCCESS
    assert "FORGE_SIGNING_SOCKET=/forge/sign/socket" in outcome.text
    for canary in (private, "/canary/agent.socket", str(tmp_path / "keys")):
        assert canary not in outcome.text
    token = next(line for line in outcome.text.splitlines() if line.startswith("FORGE_SIGNING_TOKEN="))
    assert "[secret FORGE_SIGNING_TOKEN]" in token


async def test_without_a_key_nothing_is_signed_and_minus_s_is_explained(signer: Signer, tmp_path: Path) -> None:
    for home in (signer.home, tmp_path / "home"):
        (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.test\n")
    signer.git("config", "commit.gpgSign", "true")
    outcome = await signer.bench.cmd("git commit -q --allow-empty -m plain")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert signer.git("log", "-1", "--format=%G? %s") == "N plain"
    explicit = await signer.bench.cmd("git commit -S --allow-empty -m signed")
    assert explicit.status is Status.EXECUTION_FAILED and "Signing is not set up for commands" in explicit.text
    assert signer.bench.path.walls is not None
    assert any("are not signed" in notice for notice in signer.bench.path.walls.notices)


async def test_a_program_of_the_repository_signs_nothing(signer: Signer, tmp_path: Path) -> None:
    mark, evil = tmp_path / "mark", tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\n")
    evil.chmod(0o755)
    for name in ("gpg.program", "gpg.ssh.program", "gpg.openpgp.program"):
        signer.git("config", name, str(evil))
    signer.git("config", "user.signingKey", "/etc/passwd")
    outcome = await signer.bench.cmd("git commit -q --allow-empty -m x")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert not mark.exists()
    signer.git("config", "--unset", "gpg.ssh.program")
    assert signer.git("log", "-1", "--format=%G?") == "G"


@pytest.mark.skipif(shutil.which("gpg") is None, reason="this machine has no gpg")
async def test_a_commit_is_signed_by_gpg(signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = tmp_path / "g"
    ring.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(ring))
    made = ("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "Ada <ada@example.test>", "ed25519", "sign", "0")
    try:
        subprocess.run(made, check=True, capture_output=True, timeout=PATIENCE)
        settings = "[user]\n\tname = Ada\n\temail = ada@example.test\n\tsigningKey = ada@example.test\n"
        for home in (signer.home, tmp_path / "home"):
            (home / ".gitconfig").write_text(settings)
        outcome = await signer.bench.cmd("git commit -q -S --allow-empty -m 'by gpg'")
        assert outcome.status is Status.SUCCESS, outcome.text
        environ = {"PATH": os.environ["PATH"], "HOME": str(signer.home), "GNUPGHOME": str(ring)}
        shown = subprocess.run(
            ["git", "verify-commit", "HEAD"], cwd=signer.root, env=environ, capture_output=True, text=True
        )
        assert shown.returncode == 0, shown.stderr
    finally:
        subprocess.run(["gpgconf", "--homedir", str(ring), "--kill", "all"], check=False, capture_output=True)


ADA = Identity("Ada", "ada@example.test")
TREE = b"tree " + b"1" * 40
BY = b" Ada <ada@example.test> 1 +0000"


@table(
    "data",
    [
        b"",
        b"hello",
        TREE + b"\nauthor" + BY + b"\ncommitter Eve <eve@example.test> 1 +0000\n\nx",
        TREE + b"\nauthor" + BY + b"\ncommitter" + BY + b"\ngpgsig x\n\nx",
        TREE + b"\nauthor" + BY + b"\ncommitter" + BY + b"\n\nx\0y",
        TREE + b"\nparent zz\nauthor" + BY + b"\ncommitter" + BY + b"\n\nx",
        b"object " + b"1" * 40 + b"\ntype commit\ntag v1\ntagger Eve <eve@example.test> 1 +0000\n\nx",
        b"tree x",
        TREE + b"\nauthor" + BY + b"\ncommitter" + BY + b"\n\n" + b"x" * (1 << 20),
    ],
)
def test_what_is_no_commit_or_tag_of_the_person_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteRefused):
        read_signable(data, [ADA])
    assert base64.b64encode(data) is not None


def test_a_commit_and_a_tag_of_the_person_are_read() -> None:
    parents = b"".join(b"\nparent " + bytes([48 + n]) * 40 for n in (2, 3))
    commit = read_signable(
        TREE + parents + b"\nauthor Eve <e@x> 1 +0000\ncommitter" + BY + b"\n\nsubject\n\nbody\n", [ADA]
    )
    assert (commit.kind, commit.title, commit.parents) == ("commit", "subject", ("2" * 40, "3" * 40))
    tag = read_signable(b"object " + b"4" * 40 + b"\ntype commit\ntag v1\ntagger" + BY + b"\n\nx\n", [ADA])
    assert (tag.kind, tag.title, tag.parents) == ("tag", "v1", ("4" * 40,))
