"""Loading zones: names, places, verdicts (S10)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.files import write_atomic
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import AccessMode, ZoneRequest, ZoneSpec, check_zones, worker_zones

ASK, YES, NO = Verdict.ASK, Verdict.PRE_APPROVED, Verdict.BLOCKED


def _problems(tmp_path: Path, *specs: ZoneSpec) -> str:
    """The problems of these zones where home/.forge is FORGE_HOME."""
    with pytest.raises(ConfigError) as caught:
        open_sandbox(specs, forge_home=tmp_path / "home/.forge", home=tmp_path / "home")
    return str(caught.value)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name in ("home/.forge/tools", "home/project/src", "other"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@table("name", ["tmp", "etc", "nix", "lib32", "user_tools", "Big", "1st", "", "a b", "x" * 33, "é"])
def test_s10_bad_names_are_load_errors(house: Path, name: str) -> None:
    text = _problems(house, ZoneSpec(name=name, path=house / "other"))
    assert f"'{name}'" in text and len(text.splitlines()) == 1
    if name in ("tmp", "etc"):
        assert f"/{name}" in text


@table("name", ["a", "work-space_2", "x" * 32, "temp"])
def test_good_names(house: Path, name: str) -> None:
    assert check_zones([ZoneSpec(name=name, path=house / "other")], forge_home=house / "h", home=house / "h") == []


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ("home/project", "home/project/src", "lies in"),
        ("home/project/src", "home/project", "contains"),
        ("other", "other", "is the same directory as"),
        ("other", "link", "is the same directory as"),
    ],
)
def test_s10_overlapping_zones_name_both_parties(house: Path, first: str, second: str, word: str) -> None:
    (house / "link").symlink_to(house / "other")
    text = _problems(house, ZoneSpec(name="one", path=house / first), ZoneSpec(name="two", path=house / second))
    what_to_do = "Choose directories that lie beside each other, or remove one of the two."
    assert text == f"Zones 'two' and 'one' overlap: 'two' {word} 'one'. {what_to_do}"


@table(
    ("place", "word"),
    [("home", "contains"), ("home/.forge", "is the same directory as"), ("home/.forge/tools", "lies in")],
)
def test_s10_no_zone_reaches_forge_home_not_even_read_only(house: Path, place: str, word: str) -> None:
    text = _problems(house, ZoneSpec(name="mine", path=house / place, mode=AccessMode.RO))
    assert f"Zone 'mine' {word} FORGE_HOME" in text


def test_a_forge_home_that_is_not_made_yet_is_guarded_too(house: Path) -> None:
    spec = ZoneSpec(name="mine", path=house / "other", mode=AccessMode.RO)
    problems = check_zones([spec], forge_home=house / "other/later/.forge", home=house / "home")
    assert [problem.zone for problem in problems] == ["mine"] and "contains FORGE_HOME" in problems[0].text


def test_home_and_above_are_never_rw(house: Path) -> None:
    forge_home = house / "other"
    for place, word in (("home", "is"), (".", "contains")):
        spec = ZoneSpec(name="mine", path=house / place)
        texts = [problem.text for problem in check_zones([spec], forge_home=forge_home, home=house / "home")]
        assert any(f"Zone 'mine' {word} the home directory and is rw" in text for text in texts)
    spec = ZoneSpec(name="mine", path=house / "home", mode=AccessMode.RO)
    assert check_zones([spec], forge_home=forge_home, home=house / "home") == []


def test_other_load_errors(house: Path) -> None:
    (house / "file").write_text("x")
    text = _problems(
        house,
        ZoneSpec(name="gone", path=house / "nowhere"),
        ZoneSpec(name="flat", path=house / "file"),
        ZoneSpec(name="docs", path=house / "other", mode=AccessMode.RO, write=ASK, delete=NO),
        ZoneSpec(name="docs", path=house / "home/project"),
        ZoneSpec(name="loose", path=house / "home/project", unprotect=(".git/hooks/", "Makefile")),
    )
    assert "Zone 'gone': its directory does not exist" in text and "Zone 'flat': its directory" in text
    assert "approval.write has no effect" in text and "approval.delete has no effect" in text
    assert "Zone 'docs' is named twice" in text and "unprotect 'Makefile' is not" in text
    assert ".git/hooks/'" not in text and str(house) not in text
    with pytest.raises(ConfigError, match="default_zone 'b' is not among"):
        open_sandbox(
            [ZoneSpec(name="a", path=house / "other")], "b", forge_home=house / "home/.forge", home=house / "home"
        )


def test_the_handle_is_the_zone(sandbox: Sandbox, workspace: Path, outside: Path) -> None:
    (workspace / "a").write_text("mine")
    os.rename(workspace, workspace.parent / "moved")
    workspace.symlink_to(outside)
    (outside / "a").write_text("theirs")
    for verb in (Verb.READ, Verb.WRITE, Verb.DELETE):
        with pytest.raises(SandboxError, match="Another directory was put in the place of zone '/workspace'") as caught:
            sandbox.target("/workspace/a", verb)
        assert (caught.value.code, caught.value.path) == ("PATH_CHANGED", "/workspace/a")
    assert (outside / "a").read_text() == "theirs"


def test_a_directory_that_is_gone_is_said_to_be_and_serves_again_once_it_is_back(
    sandbox: Sandbox, workspace: Path
) -> None:
    (workspace / "a").write_text("mine")
    moved = workspace.rename(workspace.parent / "moved")
    for path, verb in (("/workspace/a", Verb.READ), ("/workspace/q.txt", Verb.WRITE), ("/workspace", Verb.READ)):
        with pytest.raises(SandboxError, match="The directory of zone '/workspace' is gone; nothing") as caught:
            sandbox.target(path, verb)
        assert caught.value.code == "PATH_CHANGED" and str(workspace.parent) not in caught.value.message
    moved.rename(workspace)
    assert files.read_bytes(sandbox.target("/workspace/a", Verb.READ)) == b"mine"


def test_a_directory_that_was_moved_after_judging_is_not_written_in(sandbox: Sandbox, workspace: Path) -> None:
    """Its handle still works: without another look the file would land where nobody expects it."""
    (workspace / "sub").mkdir()
    targets = [sandbox.target(path, Verb.WRITE) for path in ("/workspace/new", "/workspace/sub/new")]
    moved = workspace.rename(workspace.parent / "moved")
    workspace.mkdir()
    for target in targets:
        for use in (target.recheck, lambda target=target: write_atomic(target, b"lost")):
            with pytest.raises(SandboxError, match="Another directory was put in the place") as caught:
                use()
            assert caught.value.code == "PATH_CHANGED"
    assert list(workspace.iterdir()) == [] and [each.name for each in moved.rglob("*")] == ["sub"]


def test_verdicts_ask_unless_written(directories: dict[str, Path], open_zones: Callable[..., Sandbox]) -> None:
    sandbox = open_zones(
        ZoneSpec(name="workspace", path=directories["workspace"]),
        ZoneSpec(name="scratch", path=directories["scratch"], write=YES, delete=NO),
    )
    zones = sandbox.zones
    assert [zones["workspace"].verdict(verb) for verb in (Verb.READ, Verb.WRITE, Verb.DELETE)] == [YES, ASK, ASK]
    assert [zones["scratch"].verdict(verb) for verb in (Verb.READ, Verb.WRITE, Verb.DELETE)] == [YES, YES, NO]
    assert sandbox.describe_zones() == "/scratch (rw), /workspace (rw)"


@pytest.mark.parametrize(
    ("program", "worker", "effective"),
    [
        (None, None, ASK),
        (None, YES, YES),
        (ASK, YES, ASK),
        (YES, ASK, ASK),
        (YES, None, YES),
        (NO, YES, NO),
        (None, NO, NO),
    ],
)
def test_the_programs_verdict_is_the_workers_floor(
    directories: dict[str, Path],
    open_zones: Callable[..., Sandbox],
    program: Verdict | None,
    worker: Verdict | None,
    effective: Verdict,
) -> None:
    specs = [ZoneSpec(name="scratch", path=directories["scratch"], write=program)]
    chosen = worker_zones("main", specs, [ZoneRequest(name="scratch", write=worker)])
    assert open_zones(*chosen).zones["scratch"].verdict(Verb.WRITE) is effective


def test_a_root_worker_gets_what_it_names_and_never_more(
    directories: dict[str, Path], open_zones: Callable[..., Sandbox]
) -> None:
    program = [
        ZoneSpec(name="workspace", path=directories["workspace"], write=ASK),
        ZoneSpec(name="docs", path=directories["docs"], mode=AccessMode.RO),
    ]
    (directories["workspace"] / "src").mkdir()
    chosen = worker_zones("main", program, [ZoneRequest(name="workspace", mode=AccessMode.RO, subpath="src")])
    sandbox = open_zones(*chosen)
    assert sandbox.describe_zones() == "/workspace (ro)" and sandbox.zones["workspace"].subpath == ("src",)
    with pytest.raises(ConfigError) as caught:
        worker_zones("main", program, [ZoneRequest(name="docs", mode=AccessMode.RW), ZoneRequest(name="cache")])
    assert "zone 'docs' rw; forge.yaml has it ro" in str(caught.value)
    assert "Add to forge.yaml:\nsandbox:\n  zones:\n    cache: {path: ./cache, mode: rw}" in str(caught.value)
    assert worker_zones("main", program, [ZoneRequest(name="docs")])[0].mode is AccessMode.RO
    with pytest.raises(ConfigError, match=r"subpath '\.\./outside'"):
        open_zones(*worker_zones("main", program, [ZoneRequest(name="workspace", subpath="../outside")]))
