"""Packages inside commands: pip and npm from an index of this machine, what a person is asked, and a second install
that downloads nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest
from tests.usertools.build.packages import Index

from golem_forge import open_session
from golem_forge.agent.session import Session
from golem_forge.cli.rules import run as forge_rules
from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.storage.home import forge_home
from golem_forge.ui.render.card import shown_choices

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="bwrap is not installed")
PYTHON = base_python()
Opener = Callable[..., Any]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path / "index")
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path, own_home: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's environment names the index, with a password for pip."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ada:canary-password@{index.host}/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", index.host)
    for name in ("npm_config_registry", "pnpm_config_registry", "YARN_NPM_REGISTRY_SERVER"):
        monkeypatch.setenv(name, f"http://{index.host}/npm/")
    monkeypatch.setenv("YARN_UNSAFE_HTTP_WHITELIST", index.host.partition(":")[0])
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def need(program: str) -> None:
    has_pip = next(Path(PYTHON).parent.parent.glob("lib/python3*/*-packages/pip"), None) is not None
    if shutil.which(program) is None if program != "pip" else not has_pip:
        pytest.skip(f"{program} is not installed")


class Person:
    """Answers each question with the choice of that id, in that lifetime, or says no; keeps the questions."""

    def __init__(self, choice: str = "", *, approves: bool = True) -> None:
        self.asked: list[Any] = []
        self.choice = choice
        self.approves = approves

    def __call__(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return {"approved": self.approves, **({"choice": self.choice} if self.choice else {})}


@pytest.fixture
async def session(project: Path) -> AsyncIterator[Session]:
    async with open_session(project, approval="approve_all") as opened:
        yield opened


async def run(session: Session, cmd: str, *network: str) -> Outcome:
    """To its end, however busy the machine is: then the outcome is that of the last look."""
    outcome = await session.call("exec_command", {"cmd": cmd, "network": list(network), "yield_time_ms": 30_000})
    while (still := re.search(r"Running: session (\d+)", outcome.text)) is not None:
        outcome = await session.call("write_stdin", {"session_id": int(still[1]), "yield_time_ms": 30_000})
    return outcome


@pytest.mark.long
async def test_pip_of_pyenv_installs_and_its_exit_code_is_that_of_pip(project: Path, index: Index) -> None:
    """Through the shim, whose hook writes all shims anew after an install: that cannot be done inside."""
    root = Path(os.environ.get("PYENV_ROOT") or Path(getpwuid(os.getuid()).pw_dir, ".pyenv"))
    if not (root / "shims" / "pip").exists():
        pytest.skip("pyenv is not installed")
    index.wheel("tiny", {"tiny.py": ""})
    async with open_session(project, approval="approve_all") as session:
        outcome = await run(session, f"{root}/shims/pip install --target out tiny && ls out/tiny.py", "group:python")
    assert outcome.status is Status.SUCCESS and outcome.text.endswith("out/tiny.py\n"), outcome.text


async def test_pip_installs_from_the_persons_mirror_and_sees_no_password(
    project: Path, index: Index, is_long: bool
) -> None:
    """A later session, which installs the same, downloads nothing. `--long`: two sessions at the same time before."""
    need("pip")
    index.wheel("tiny", {"tiny.py": "x = 42\n"})

    async def install(session: Session, out: str) -> None:
        words = (
            f"{PYTHON} -m pip install --target {out} tiny && PYTHONPATH={out} {PYTHON} -c 'import tiny; print(tiny.x)'"
        )
        outcome = await run(session, words, "group:python")
        assert outcome.status is Status.SUCCESS and outcome.text.rstrip().endswith("42"), outcome.text

    async with (
        open_session(project, approval="approve_all") as session,
        open_session(project, approval="approve_all") as beside,
    ):
        await asyncio.gather(install(session, "out"), *([install(beside, "other")] if is_long else []))
        environment = (await run(session, "env")).text
        assert f"PIP_INDEX_URL=http://{index.host}/simple" in environment
        assert "canary" not in environment and "[secret" not in environment
        assert session.path.walls is not None
        [told] = [notice for notice in session.path.walls.notices if "PIP_INDEX_URL" in notice]
        assert "without the user name" in told and "canary" not in told
    downloads = index.downloads(".whl")
    async with open_session(project, approval="approve_all") as later:
        await install(later, "again")
    assert index.downloads(".whl") == downloads > 0
    assert not (Path.home() / ".cache" / "pip").exists()


async def test_the_second_npm_ci_downloads_nothing(session: Session, project: Path, index: Index) -> None:
    need("npm")
    integrity = index.node_package("tiny", {"index.js": "module.exports = 42\n"})
    packages = {
        "": {"name": "app", "version": "1.0.0", "dependencies": {"tiny": "1.0.0"}},
        "node_modules/tiny": {
            "version": "1.0.0",
            "resolved": f"http://{index.host}/npm/-/tiny-1.0.0.tgz",
            "integrity": integrity,
        },
    }
    (project / "package.json").write_text(json.dumps(packages[""]))
    lock = {"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": packages}
    (project / "package-lock.json").write_text(json.dumps(lock))
    for _ in range(2):
        outcome = await run(session, "npm ci --no-audit --no-fund && node -p 'require(\"tiny\")'", "group:node")
        assert outcome.status is Status.SUCCESS and outcome.text.rstrip().endswith("42"), outcome.text
    assert index.downloads(".tgz") == 1


async def test_the_second_uv_install_downloads_nothing(
    project: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed")
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://{index.host}/simple")
    index.wheel("tiny", {"tiny.py": ""})
    async with open_session(project, approval="approve_all") as session:
        first = 0
        for number in range(2):
            install = f"rm -rf out; uv pip install --python {PYTHON} --target out tiny && ls out/tiny.py"
            outcome = await run(session, install, "group:python")
            assert outcome.status is Status.SUCCESS, outcome.text
            first = first if number else index.downloads(".whl")
    assert index.downloads(".whl") == first > 0


async def test_the_second_yarn_install_downloads_nothing(session: Session, project: Path, index: Index) -> None:
    need("yarn")
    index.node_package("tiny", {"index.js": "module.exports = 42\n"})
    (project / "package.json").write_text(json.dumps({"name": "app", "dependencies": {"tiny": "1.0.0"}}))
    (project / ".yarnrc").write_text(f'registry "http://{index.host}/npm/"\n')
    for _ in range(2):
        install = "rm -rf node_modules; yarn install && yarn node -p 'require(\"tiny\")' | grep 42"
        outcome = await run(session, install, "group:node")
        assert outcome.status is Status.SUCCESS and outcome.text.rstrip().endswith("42"), outcome.text
    assert index.downloads(".tgz") == 1


async def test_the_second_pnpm_install_downloads_nothing(session: Session, project: Path, index: Index) -> None:
    need("pnpm")
    index.node_package("tiny", {"index.js": "module.exports = 42\n"})
    (project / "package.json").write_text(json.dumps({"name": "app", "dependencies": {"tiny": "1.0.0"}}))
    for _ in range(2):
        install = "rm -rf node_modules; pnpm install && node -p 'require(\"tiny\")'"
        outcome = await run(session, install, "group:node")
        assert outcome.status is Status.SUCCESS and outcome.text.rstrip().endswith("42"), outcome.text
    assert index.downloads(".tgz") == 1


async def test_the_second_go_build_downloads_nothing(
    project: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = next(Path(sys.executable).parent.parent.glob("lib/python3*/site-packages/go/bin/go"), None)
    if beside is not None:  # ahead of a Go that the machine has
        monkeypatch.setenv("PATH", f"{beside.parent}:{os.environ['PATH']}")
    need("go")
    monkeypatch.setenv("GOPROXY", f"http://{index.host}/go")
    monkeypatch.setenv("GONOSUMDB", "example.test/*")
    index.go_module("example.test/tiny", {"tiny.go": "package tiny\n\nconst Answer = 42\n"})
    (project / "go.mod").write_text("module app\n\ngo 1.20\n\nrequire example.test/tiny v1.0.0\n")
    (project / "main.go").write_text(
        'package main\n\nimport "example.test/tiny"\n\nfunc main() { println(tiny.Answer) }\n'
    )
    async with open_session(project, approval="approve_all") as session:
        for _ in range(2):
            outcome = await run(session, "go mod tidy && go list -m all", "group:go")
            assert outcome.status is Status.SUCCESS and "example.test/tiny v1.0.0" in outcome.text, outcome.text
    assert index.downloads(".zip") == 1


async def test_an_install_without_network_says_which_group_to_ask_for(session: Session, index: Index) -> None:
    need("pip")
    pip = f"env -u PYTHONPYCACHEPREFIX {PYTHON} -m pip"  # which need not be compiled for it
    outcome = await run(session, f"{pip} install --retries 0 --target out tiny")
    assert outcome.status is Status.EXECUTION_FAILED, outcome.text
    assert """to install packages, name "group:python" in 'network'""" in outcome.text
    assert (await run(session, "echo no such host; false")).text.count("name hosts in 'network'") == 1
    by_host = await run(session, "echo getaddrinfo ENOTFOUND registry.npmjs.org; false")
    assert '"group:node"' in by_host.text


async def test_a_host_that_nobody_reaches_from_here_is_told_apart_from_the_walls(session: Session) -> None:
    """pip, cargo and curl show the number 502, and not what the proxy says."""
    need("curl")
    outcome = await run(session, "curl -s https://gone.invalid/", "gone.invalid")
    assert outcome.status is Status.EXECUTION_FAILED
    assert "This computer does not reach it either, with or without walls: gone.invalid:443." in outcome.text


@pytest.mark.long
@pytest.mark.parametrize("cmd", ["npm install tiny --no-audit", "pnpm add tiny"])
async def test_without_network_it_does_not_try_for_a_minute(session: Session, project: Path, cmd: str) -> None:
    """It ends while the call waits for it, so that its result says what to ask for."""
    need(cmd.split()[0])
    outcome = await run(session, cmd)
    assert outcome.status is Status.EXECUTION_FAILED and 'name "group:node" in' in outcome.text, outcome.text


async def test_its_card_offers_the_group_for_this_directory_first(project: Path, index: Index) -> None:
    person = Person("group:always")
    async with open_session(project, approval="interactive", approval_callback=person) as session:
        assert (await run(session, "true", "group:python")).status is Status.SUCCESS
        [request] = person.asked
        first = shown_choices([each.to_wire() for each in request.choices])[0]
        assert first["id"] == "group:always" and "hosts of group python" in first["label"]
        for host in ("pypi.org:443", "files.pythonhosted.org:443", index.host):
            assert f"net {host}" in str(request.effects)
        assert (await run(session, "ls", "group:python")).status is Status.SUCCESS
    assert len(person.asked) == 1
    remembered = forge_home().remembered.read_text()
    assert '"group": "python"' in remembered and str(project) in remembered
    other = project.parent / "other"
    other.mkdir()
    person.choice = ""
    async with open_session(other, approval="interactive", approval_callback=person) as session:
        await run(session, "ls", "group:python")
    assert len(person.asked) == 2


def test_the_verbs_know_groups(project: Path, index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    forge_home().ensure()
    call = ["exec_command", json.dumps({"cmd": "ls", "network": ["group:python"]})]
    assert forge_rules(["explain", *call]) == 3
    assert "pypi.org:443" in capsys.readouterr().out
    forge_home().rules.write_text("rules: [{group: python, verdict: preApproved}]\n")
    assert forge_rules(["explain", *call]) == 0
    forge_home().rules.write_text("rules: [{group: python, verdict: blocked, reason: not here}]\n")
    assert forge_rules(["explain", *call]) == 4
    capsys.readouterr()
    assert forge_rules(["list"]) == 0
    assert f"group python (pypi.org, files.pythonhosted.org, {index.host})" in capsys.readouterr().out
    forge_home().rules.write_text("rules: [{group: pyhton, verdict: preApproved}]\n")
    assert forge_rules(["check"]) == 1
    assert "did you mean" in capsys.readouterr().out.lower()


async def test_the_refusal_of_a_private_address_prints_its_rule(session: Session, index: Index) -> None:
    need("curl")
    port = index.host.partition(":")[2]
    outcome = await run(session, f"curl -sSf http://0.0.0.0:{port}/", f"0.0.0.0:{port}")
    assert outcome.status is Status.SANDBOX_DENIED
    assert f'- {{host: "0.0.0.0", ports: [{port}], private: true, verdict: preApproved}}' in outcome.text
    refused = await run(session, "curl -sS https://pypi.org/; false", "example.test")
    assert "pypi.org:443 belongs to group:python" in refused.text


async def test_a_contained_session_asks_for_the_network_and_keeps_the_cache(project: Path, index: Index) -> None:
    person = Person(approves=False)
    async with open_session(project, approval="contained", approval_callback=person) as session:
        assert (await run(session, "mkdir -p ~/.cache/x && echo kept > ~/.cache/x/y")).status is Status.SUCCESS
        assert (await run(session, "cat ~/.cache/x/y > found")).status is Status.SUCCESS
        assert not person.asked and (project / "found").read_text() == "kept\n"
        await run(session, "pip install tiny")
    assert "needs a package registry (`group:python` in `network`)" in person.asked[0].why
