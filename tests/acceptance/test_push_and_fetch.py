"""An agent works in my repository and pushes: with my ssh agent or my credential helper, which it never sees."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.test_session_commands import Typing
from tests.deadlines import PATIENCE
from tests.git_remotes import PASSWORD, Elsewhere, bare, git, https_remote, ssh_remote

from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.render.reports import CallDisplay, brief_result

COMMIT = "echo two > a.txt && git commit -qam 'the second'"


def words(*commands: str) -> str:
    calls = [{"calls": [{"tool": "exec_command", "args": {"cmd": command}}]} for command in commands]
    return json.dumps({"turns": [*calls, {"say": "done"}]})


@pytest.fixture(params=["https", "ssh"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Elsewhere]:
    with (https_remote if request.param == "https" else ssh_remote)(tmp_path / "elsewhere") as remote:
        yield remote


def repository(place: Any, own_home: Path, url: str, settings: str = "") -> Path:
    """One commit on main, a remote `origin`, and the person's own settings."""
    (own_home / ".gitconfig").write_text(f"[user]\n\tname = Ada\n\temail = ada@example.test\n{settings}")
    root: Path = place.root
    (root / "a.txt").write_text("one\n")
    (root / ".gitignore").write_text("words.json\n")
    git(root, "init", "-q", "-b", "main", ".", home=own_home)
    git(root, "add", "a.txt", ".gitignore", home=own_home)
    git(root, "commit", "-q", "-m", "the first", home=own_home)
    git(root, "remote", "add", "origin", url, home=own_home)
    return root


def run(place: Any, *commands: str, **environ: str) -> Any:
    place.write(**{"words.json": words(*commands)})
    return place.forge("run", "--model", "scripted:words.json", "--approval", "approve_all", "-i", "go", **environ)


def ran_as(place: Any, at: int = -1) -> list[tuple[str, str]]:
    """The tool that each call became, and how it ended."""
    records = place.records(at)
    tools = [one["tool"] for one in records if one["type"] == "started"]
    return list(zip(tools, (one["status"] for one in records if one["type"] == "finished"), strict=True))


def served(elsewhere_root: Path, *words: str) -> str:
    return git(elsewhere_root / "served/project.git", *words)


def test_the_agent_pushes_and_pulls_with_my_credentials(
    desk: Callable[..., Any], own_home: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    place = desk({})
    place.know_walls()
    root = repository(place, own_home, elsewhere.url, elsewhere.settings)
    ran = run(place, COMMIT, "git push -u origin main", "git ls-remote origin", **elsewhere.environ)
    assert ran.code == 0, ran.out + ran.err
    assert served(tmp_path / "elsewhere", "log", "--format=%s", "main") == "the second\nthe first"
    assert ran_as(place) == [("exec_command", "success"), ("git_push", "success"), ("git_fetch", "success")]
    # As git would: the remote-tracking branch, and what main follows.
    assert git(root, "log", "-1", "--format=%s", "origin/main") == "the second"
    assert git(root, "rev-parse", "--symbolic-full-name", "main@{upstream}") == "refs/remotes/origin/main"

    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(tmp_path / "elsewhere/served/project.git"), str(other))
    (other / "b.txt").write_text("theirs\n")
    git(other, "add", ".")
    git(other, "-c", "user.name=B", "-c", "user.email=b@example.test", "commit", "-q", "-m", "by another")
    git(other, "push", "-q", "origin", "main")
    pulled = run(place, "git pull", "git log --format=%s", **elsewhere.environ)
    assert pulled.code == 0, pulled.out + pulled.err
    assert (root / "b.txt").read_text() == "theirs\n"
    assert git(root, "log", "-1", "--format=%s", "main") == "by another"
    assert ("git_fetch", "success") in ran_as(place, 0) and ("git_fetch", "success") in ran_as(place, 1)
    kept = place.kept_bytes() + (ran.out + ran.err + pulled.out + pulled.err).encode()
    assert PASSWORD.encode() not in kept


@pytest.mark.parametrize("elsewhere", ["https", pytest.param("ssh", marks=pytest.mark.long)], indirect=True)
def test_on_a_runner_the_credentials_are_the_runners(
    desk: Callable[..., Any], own_home: Path, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    """Whoever starts a background session lends it nothing: their helper is not even asked."""
    place = desk({})
    place.know_walls()
    persons = tmp_path / "persons-helper"
    persons.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho username=eve\necho password=canary-of-the-starter\n")
    persons.chmod(0o700)
    repository(place, own_home, elsewhere.url, f"[credential]\n\thelper = {persons}\n")
    account = tmp_path / "account"
    account.mkdir()
    (account / ".gitconfig").write_text(f"[user]\n\tname = Robot\n\temail = r@example.test\n{elsewhere.settings}")
    place.write(**{"words.json": words(COMMIT, "git push origin main")})
    options = ("--no-runner", "--approval", "approve_all", "--model", "scripted:words.json")
    started = place.forge("run", "--background", *options, "go")
    assert started.code == 0, started.err
    assert place.forge("runner", "--idle", "1", HOME=str(account), **elsewhere.environ).code == 0
    assert served(tmp_path / "elsewhere", "log", "--format=%an: %s", "main") == "Robot: the second\nAda: the first"
    assert not (tmp_path / "asked").exists()
    assert PASSWORD.encode() not in place.kept_bytes() and b"canary-of-the-starter" not in place.kept_bytes()


def test_a_clone_of_a_session_says_how_its_commits_travel(desk: Callable[..., Any], own_home: Path) -> None:
    place = desk({})
    place.know_walls()
    repository(place, own_home, "https://git.invalid/project.git")
    place.write(**{"words.json": words("git push origin main")})
    options = ("--no-runner", "--workspace", ".", "--approval", "approve_all", "--model", "scripted:words.json")
    started = place.forge("run", "--background", *options, "go")
    assert started.code == 0, started.err
    assert place.forge("runner", "--idle", "1").code == 0
    [call] = json.loads(place.forge("log", "--session", started.out.split()[1], "--json").out)
    assert "This repository has no remotes" in call["error"] and "`forge apply`" in call["error"]
    assert "https or ssh address in place of 'origin'" in call["error"]


def test_a_remote_in_a_zone_is_reached_inside_the_walls(desk: Callable[..., Any], own_home: Path) -> None:
    place = desk({})
    place.know_walls()
    remote = bare(place.root / "remotes", "here.git")
    root = repository(place, own_home, f"file://{remote}")
    ran = run(place, COMMIT, "git push origin main")
    assert ran.code == 0, ran.out + ran.err
    assert git(remote, "log", "-1", "--format=%s", "main") == "the second"
    assert git(root, "log", "-1", "--format=%s", "origin/main") == "the second"


def test_a_remote_outside_every_zone_is_refused_with_the_reason(
    desk: Callable[..., Any], own_home: Path, tmp_path: Path
) -> None:
    place = desk({})
    place.know_walls()
    remote = bare(tmp_path / "remotes", "there.git")
    repository(place, own_home, str(remote))
    run(place, "git push origin main")
    (call,) = place.calls()
    assert call.status == "execution_failed" and "outside every zone" in call.error
    assert str(tmp_path) not in call.error


def test_a_script_that_pushes_is_told_how_to(desk: Callable[..., Any], own_home: Path) -> None:
    place = desk({})
    place.know_walls()
    repository(place, own_home, "https://git.example.test/me/project.git")
    run(place, "for b in main; do git push origin $b; done", "git submodule add https://git.example.test/x.git lib")
    assert [(call.tool, call.status) for call in place.calls()] == [("exec_command", "execution_failed")] * 2
    told = str(place.history())
    assert "call git_push or git_fetch" in told and "A submodule is added or cloned by the user" in told


@pytest.mark.parametrize("elsewhere", ["https"], indirect=True)
async def test_a_person_types_a_push(
    desk: Callable[..., Any], own_home: Path, tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`!git push` is the same call as the agent's; a script that pushes names the way that works, to them as well."""
    for name, value in elsewhere.environ.items():
        monkeypatch.setenv(name, value)
    place = desk({})
    place.know_walls()
    root = repository(place, own_home, elsewhere.url, elsewhere.settings)
    async with Typing(root, approval_mode="approve_all") as person:
        results: list[Any] = []
        person.runtime.bus.on("toolResult", lambda event: results.append(event.wire))
        await person.type("!git push -u origin main")
        assert (results[-1]["toolName"], results[-1]["status"]) == ("git_push", "success"), results[-1]
        assert served(tmp_path / "elsewhere", "log", "--format=%s", "main") == "the first"
        await person.type("!cd . && git push")
        (way,) = results[-1]["value"]["ways"]
        assert "git push REMOTE BRANCH" in way
        assert way in plain_text(brief_result(results[-1], CallDisplay(), 4000))


def test_the_agents_commit_carries_my_signature(desk: Callable[..., Any], own_home: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=PATIENCE)
    allowed = tmp_path / "allowed"
    allowed.write_text(f"ada@example.test {Path(f'{key}.pub').read_text()}")
    settings = f'\tsigningKey = {key}\n[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tallowedSignersFile = {allowed}\n'
    place = desk({})
    place.know_walls()
    root = repository(place, own_home, "https://git.example.test/x.git", settings)
    ran = run(place, "git commit -q -S --allow-empty -m signed")
    assert ran.code == 0, ran.out + ran.err
    assert git(root, "log", "-1", "--format=%G? %s", home=own_home) == "G signed"
    private = key.read_bytes().splitlines()[1]
    assert private not in place.kept_bytes()
