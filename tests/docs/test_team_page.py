"""What an operator copies from docs/team.md: the SQL, the units, the backup. Each is taken from the page and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.ready import ReadyForge
from tests.team.background import Program, until
from tests.team.conftest import own_postgres, postgres  # noqa: F401  (fixtures)
from tests.team.postgres import PASSWORD, PostgresServer

from golem_forge.cli.main import main
from golem_forge.cli.team.batch import HELP as BATCH_HELP
from golem_forge.cli.team.runner import HELP as RUNNER_HELP
from golem_forge.cli.team.sessions import HELP as INBOX_HELP
from golem_forge.cli.team.store import HELP as STORE_HELP
from golem_forge.cli.web import HELP as WEB_HELP

PAGE = (Path(__file__).parents[2] / "docs" / "team.md").read_text()
HELPS = {
    "batch": BATCH_HELP,
    "inbox": INBOX_HELP,
    "runner": RUNNER_HELP,
    "store": STORE_HELP,
    "web": WEB_HELP,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_page_have_options_that_forge_knows() -> None:
    text = "\n".join(blocks("sh") + blocks("ini") + blocks("dockerfile")).replace('", "', " ").replace("\\\n", " ")
    commands = re.findall(rf"\bforge ({'|'.join(HELPS)})\b([^\n#;|]*)", text)
    assert {verb for verb, _ in commands} == set(HELPS)
    for verb, words in commands:
        given = re.findall(r"(?<![\w-])--?[a-z][\w-]*", words)
        assert [word for word in given if not re.search(rf"(?<![\w-]){word}(?![\w-])", HELPS[verb])] == [], (
            verb,
            words,
        )


@pytest.mark.parametrize("verb", ["runner", "web"])
def test_systemd_takes_the_units(verb: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this machine has no systemd-analyze")
    [unit] = [each for each in blocks("ini") if f"ExecStart=/opt/forge/bin/forge {verb} " in each]
    path = tmp_path / f"forge-{verb}.service"
    path.write_text(unit.replace("/opt/forge/bin/forge", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_database_of_the_page_is_made_used_saved_and_restored(
    own_postgres: PostgresServer,  # noqa: F811
    tmp_path: Path,
    ready_forge: ReadyForge,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [sql] = blocks("sql")
    for statement in re.sub(r"'[a-z-]+'", f"'{PASSWORD}'", sql).split(";"):
        if statement.strip():
            own_postgres.execute(statement)
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("store: {url: env:STORE_URL}\n")
    monkeypatch.setenv("FORGE_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    def forge(role: str, words: str, database: str = "forge", code: int = 0) -> str:
        monkeypatch.setenv("STORE_URL", own_postgres.url(database, role))
        assert main(words.split()) == code
        return "".join(capsys.readouterr())

    [init] = re.findall(r"^forge (store init .*)$", PAGE, re.MULTILINE)
    assert "made the tables" in forge("forge_owner", init)
    assert "role: forge_runner (runner)" in forge("forge_runner", "store status")
    assert "Use the role that owns the tables" in forge("forge_runner", "people add eve", code=2)
    assert "eve is viewer" in forge("forge_page", "people add eve")
    program = Program(tmp_path / "shop", home, own_postgres.url("forge", "forge_runner"), ready_forge, tools=False)
    try:
        session = program.queue()
        program.start_runner("--idle", "1")
        program.wait_for(session, "finished")
        until(lambda: not program.store().runners.seen())
    finally:
        program.close()

    [dump] = re.findall(r"^pg_dump .*$", PAGE, re.MULTILINE)
    [restore] = re.findall(r"^pg_restore .*$", PAGE, re.MULTILINE)
    own_postgres.execute("CREATE DATABASE forge_again OWNER forge_owner")
    for command in (dump, restore.replace("--dbname forge ", "--dbname forge_again ")):
        words: list[Any] = command.replace("db.example.com", "127.0.0.1").split()
        environ = {"PGPASSWORD": PASSWORD, "PGPORT": str(own_postgres.port), "PATH": "/usr/bin:/bin"}
        subprocess.run(words, env=environ, check=True, timeout=PATIENCE, cwd=tmp_path)
    assert "1 journal, " in (said := forge("forge_owner", "store verify", "forge_again")) and said.endswith("ok\n")
    assert session[:12] in forge("forge_runner", "ps --all", "forge_again")
    assert "eve" in forge("forge_page", "people list", "forge_again")
