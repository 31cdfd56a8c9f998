"""Import: equal files and digest, an exact lock, nothing executed, and nothing left of what was refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.errors import ForgeError
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import folder as staging
from golem_forge.usertools import share
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable
from golem_forge.usertools.folder import FolderFiles, read_folder, staging_folder
from golem_forge.usertools.manifest import ToolManifest
from golem_forge.usertools.share import MISSING, Drift, GitAccess, lock_path, read_lock, verify_tools
from golem_forge.usertools.share.export import export_tool
from golem_forge.usertools.share.importer import import_tool
from golem_forge.usertools.share.reader import GitCommand

Look = Callable[[], list[str]]
MakeTool = Callable[..., Path]
NOW = "2030-01-02T03:04:05.678Z"


def test_a_link_put_where_an_export_just_made_a_folder_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process inside the walls would, whose zone is exported to: at the worst moment, every time."""
    outside, make = tmp_path / "outside", os.mkdir
    outside.mkdir()

    def swapped(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        make(path, mode, dir_fd=dir_fd)
        if os.path.basename(path) == "sub":
            os.rmdir(path, dir_fd=dir_fd)
            os.symlink(outside, path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapped)
    files = FolderFiles({"sub/one": b"the agent's", "sub/two": b"words"}, frozenset())
    with pytest.raises(SharingError):
        export_tool(files, "greet", tmp_path / "out")
    assert os.listdir(outside) == [] and os.listdir(tmp_path / "out") == []


def test_an_export_comes_back_with_an_equal_digest(home: ForgeHome, tmp_path: Path, make_tool: MakeTool) -> None:
    files = read_folder(make_tool())
    archive = export_tool(files, "greet", tmp_path / "greet.tar.gz")
    again = export_tool(files, "greet", tmp_path / "again" / "greet.tar.gz")
    assert archive.read_bytes() == again.read_bytes()
    folder = export_tool(files, "greet", tmp_path / "out")
    assert folder == tmp_path / "out" / "greet" and read_folder(folder).digest == files.digest
    shutil.make_archive(str(tmp_path / "greet"), "zip", folder)
    sources = [archive, folder, tmp_path / "out", tmp_path / "greet.zip"]
    for number, source in enumerate(sources):
        other = ForgeHome(tmp_path / f"home-{number}")
        imported = import_tool(str(source), home=other)
        assert (imported.name, imported.digest, imported.version) == ("greet", files.digest, "1.2")
        assert read_folder(other.path / "tools" / "greet").digest == files.digest


def test_files_are_the_owners_alone(home: ForgeHome, make_tool: MakeTool) -> None:
    source = make_tool()
    (source / "data/deep/er").mkdir(parents=True)
    (source / "data/deep/er/one.txt").write_text("1")
    (source / "far/away").mkdir(parents=True)
    (source / "far/away/two.txt").write_text("2")
    import_tool(str(source), home=home)
    tool = home.path / "tools" / "greet"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tool, *tool.rglob("*"))}
    assert modes == {
        "greet": 0o700,
        "data": 0o700,
        "tool.yaml": 0o600,
        "greet.py": 0o600,
        "run.bin": 0o700,
        "words.txt": 0o600,
        "deep": 0o700,
        "er": 0o700,
        "one.txt": 0o600,
        "far": 0o700,
        "away": 0o700,
        "two.txt": 0o600,
    }


def test_the_lock_says_where_it_came_from(home: ForgeHome, make_tool: MakeTool) -> None:
    folder = make_tool()
    imported = import_tool(str(folder), home=home, now=lambda: NOW)
    expected = {
        "tools": [
            {
                "commit": "",
                "digest": imported.digest,
                "name": "greet",
                "source": str(folder),
                "time": NOW,
                "version": "1.2",
            }
        ]
    }
    assert lock_path(home).read_text() == json.dumps(expected, indent=2, sort_keys=True) + "\n"
    assert stat.S_IMODE(lock_path(home).stat().st_mode) == 0o600
    import_tool(str(folder), home=home, rename="aaa", now=lambda: NOW)
    assert [each["name"] for each in json.loads(lock_path(home).read_text())["tools"]] == ["aaa", "greet"]
    assert share.drop_record(home, "aaa") and not share.drop_record(home, "aaa") and list(read_lock(home)) == ["greet"]


def test_a_rename_changes_one_word(home: ForgeHome, make_tool: MakeTool) -> None:
    folder = make_tool()
    assert import_tool(str(folder), home=home, rename="Hello_2").name == "Hello_2"
    made = home.path / "tools" / "Hello_2"
    before, after = (folder / "tool.yaml").read_text(), (made / "tool.yaml").read_text()
    assert after == before.replace("name: greet", "name: Hello_2", 1)
    assert (made / "greet.py").read_bytes() == (folder / "greet.py").read_bytes()


@pytest.mark.parametrize(
    ("line", "as_name", "result"),
    [
        ('name: "greet" # ours\n', "x", "name: x # ours\n"),
        ("name:\n  greet\n", "x", "name:\n  x\n"),
        ("'name':   'greet'\n", "on", "'name':   \"on\"\n"),
        ("name: exec_command\n", "x", "name: x\n"),
        ("name: no good\n", "x", "name: x\n"),
        ("\ufeffname: greet\r\n", "longer-name", "\ufeffname: longer-name\r\n"),
    ],
)
def test_a_name_is_replaced_however_it_is_written(
    home: ForgeHome, make_tool: MakeTool, line: str, as_name: str, result: str
) -> None:
    rest = "description: d\nversion: '1'\nentrypoint: greet.py\n"
    folder = make_tool(**{"tool.yaml": line + rest})
    import_tool(str(folder), home=home, rename=as_name)
    assert (home.path / "tools" / as_name / "tool.yaml").read_bytes().decode() == result + rest


def test_a_name_in_a_flow_mapping_and_one_in_a_parameter(home: ForgeHome, make_tool: MakeTool) -> None:
    text = (
        "{version: name, parameters: [{name: name, type: string, description: d}],\n"
        " name: greet, description: name, entrypoint: greet.py}\n"
    )
    folder = make_tool(**{"tool.yaml": text})
    import_tool(str(folder), home=home, rename="x")
    assert (home.path / "tools" / "x" / "tool.yaml").read_text() == text.replace("name: greet", "name: x")


@pytest.mark.parametrize("name", ["exec_command", "a__b", "../up", "a/b", "-x", "x" * 65])
def test_a_name_no_tool_can_have_is_refused(home: ForgeHome, make_tool: MakeTool, leftovers: Look, name: str) -> None:
    with pytest.raises(Unusable) as refused:
        import_tool(str(make_tool()), home=home, rename=name)
    assert refused.value.diagnostic_code in (DiagnosticCode.NAME_INVALID, DiagnosticCode.RESERVED_NAME)
    assert "--as NAME" in refused.value.message and leftovers() == []


def test_what_is_there_is_never_replaced(home: ForgeHome, make_tool: MakeTool) -> None:
    import_tool(str(make_tool()), home=home)
    before = lock_path(home).read_bytes()
    for name in ("greet", "GREET"):
        with pytest.raises(SharingError, match=r"already exists at .*tools/greet; import it under"):
            import_tool(str(make_tool("greet", **{"greet.py": "other"})), home=home, rename=name)
    (home.path / "tools" / "plain").write_text("no folder")
    (home.path / "tools" / "link").symlink_to("nowhere")
    for name in ("plain", "link"):
        with pytest.raises(SharingError, match="already exists"):
            import_tool(str(make_tool()), home=home, rename=name)
    assert (
        lock_path(home).read_bytes() == before and (home.path / "tools" / "greet" / "greet.py").read_text() != "other"
    )


WITNESSES = {
    "install.sh": "#!/bin/sh\ntouch {0}/install\n",
    "setup.py": "open('{0}/setup', 'w')\n",
    "postinstall": "#!/bin/sh\ntouch {0}/postinstall\n",
    "package.json": '{{"scripts": {{"postinstall": "touch {0}/npm"}}}}',
    "conftest.py": "open('{0}/conftest', 'w')\n",
    "greet.py": "open('{0}/entry', 'w')\n",
    ".gitattributes": "* filter=evil\n",
}


def test_no_file_of_an_import_is_executed(
    home: ForgeHome, tmp_path: Path, make_tool: MakeTool, repository: Any
) -> None:
    place = tmp_path / "witnesses"
    place.mkdir()
    folder = make_tool(at=repository.folder / "greet", **{n: t.format(place) for n, t in WITNESSES.items()})
    for name in ("install.sh", "postinstall"):
        (folder / name).chmod(0o755)
    commit = repository.commit()
    for hook in ("post-checkout", "post-merge", "reference-transaction", "pre-receive", "post-update"):
        path = repository.folder / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {place}/{hook}\n")
        path.chmod(0o755)
    repository.run("config", "filter.evil.smudge", f"touch {place}/smudge")
    archive = export_tool(read_folder(folder), "greet", tmp_path / "greet.tar.gz")
    for name, source in (("a", str(folder)), ("b", str(archive)), ("c", repository.source(commit, "greet"))):
        import_tool(source, home=home, rename=name, access=GitAccess(transports=frozenset({"file"})))
        assert (home.path / "tools" / name / "setup.py").is_file()
    assert list(place.iterdir()) == []


def test_a_persons_own_git_settings_start_no_hook(
    home: ForgeHome, tmp_path: Path, own_home: Path, make_tool: MakeTool, repository: Any
) -> None:
    """A template or hooks folder of the person is for their own repositories, not for ours."""
    make_tool(at=repository.folder)
    commit = repository.commit()
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    for hook in ("reference-transaction", "post-checkout"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (hooks / hook).chmod(0o755)
    (own_home / ".gitconfig").write_text(f"[core]\nhooksPath={hooks}\n[init]\ntemplateDir={hooks.parent}\n")
    import_tool(repository.source(commit), home=home, access=GitAccess(transports=frozenset({"file"})))
    with staging_folder(home) as folder:
        git = GitCommand(folder=folder, access=GitAccess(environ=os.environ, transports=frozenset()))
        git.output(["init", "--quiet", "--bare", "--template=", "."], 100)
        blob = git.output(["hash-object", "-w", "--stdin"], 100, stdin=b"x").decode().strip()
        git.output(["update-ref", "refs/forge/x", blob], 100)  # what the person's hook would be told of
    assert not (tmp_path / "ran").exists()


def broken_manifest(folder: Path) -> None:
    (folder / "tool.yaml").write_text("name: greet\ntimout: 5\n")


def no_entrypoint(folder: Path) -> None:
    (folder / "greet.py").unlink()


def no_manifest(folder: Path) -> None:
    (folder / "tool.yaml").unlink()


def link(folder: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")


def linked_manifest(folder: Path) -> None:
    (folder / "tool.yaml").rename(folder.parent / "elsewhere.yaml")
    (folder / "tool.yaml").symlink_to("../elsewhere.yaml")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def too_many(folder: Path) -> None:
    for number in range(200):
        (folder / f"f{number}").touch()


def odd_case(folder: Path) -> None:
    (folder / "GREET.py").touch()


@pytest.mark.parametrize(
    "spoil", [broken_manifest, no_entrypoint, no_manifest, link, linked_manifest, pipe, too_many, odd_case]
)
def test_a_folder_that_is_no_tool_leaves_nothing(
    home: ForgeHome, make_tool: MakeTool, leftovers: Look, spoil: Callable[[Path], None]
) -> None:
    folder = make_tool()
    spoil(folder)
    with pytest.raises(ForgeError):
        import_tool(str(folder), home=home)
    assert leftovers() == []


@pytest.mark.parametrize("step", ["check", "write", "rename", "record"])
def test_a_failure_in_the_middle_leaves_nothing(
    home: ForgeHome, make_tool: MakeTool, leftovers: Look, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    seen: list[list[str]] = []

    def fail(*_: object) -> None:
        seen.append(leftovers())
        raise KeyboardInterrupt

    source = str(make_tool())
    if step == "write":
        monkeypatch.setattr(staging.os, "fsync", fail)
    elif step == "rename":
        monkeypatch.setattr(staging, "install", fail)
    elif step == "record":
        monkeypatch.setattr(share.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        import_tool(source, home=home, check=fail if step == "check" else lambda *_: None)
    assert seen and any("tool.yaml" in name or "run.bin" in name or "words.txt" in name for name in seen[0])
    assert step == "record" or not any(name.startswith("tools/") for name in seen[0])
    assert leftovers() == []


def test_the_caller_sees_the_finished_offer_and_may_refuse(
    home: ForgeHome, make_tool: MakeTool, leftovers: Look
) -> None:
    offered: list[tuple[str, str, str]] = []

    def refuse(name: str, manifest: ToolManifest, files: FolderFiles) -> None:
        offered.append((name, manifest.name, files.digest))
        raise SharingError(f"identical to custom tool '{name}-twin'")

    folder = make_tool("x")
    with pytest.raises(SharingError, match="identical to custom tool 'x-twin'"):
        import_tool(str(folder), home=home, check=refuse)
    assert offered == [("x", "x", read_folder(folder).digest)] and leftovers() == []


def test_a_lock_that_cannot_be_read_is_kept(home: ForgeHome, make_tool: MakeTool) -> None:
    home.ensure()
    for text in ("{", "[]", '{"tools": [{"name": 1}]}', '{"tools": 5}', "[" * 100_000):
        lock_path(home).write_text(text)
        with pytest.raises(SharingError, match=r"tools\.lock cannot be read"):
            import_tool(str(make_tool()), home=home)
        assert lock_path(home).read_text() == text and not (home.path / "tools" / "greet").exists()
    lock_path(home).unlink()
    lock_path(home).mkdir()
    with pytest.raises(SharingError, match=r"tools\.lock cannot be read"):
        import_tool(str(make_tool()), home=home)
    assert not (home.path / "tools" / "greet").exists()


def test_imports_at_once_all_reach_the_lock(home: ForgeHome, make_tool: MakeTool) -> None:
    from concurrent.futures import ThreadPoolExecutor

    source = str(make_tool())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: import_tool(source, home=home, rename=f"t{number}"), range(16)))
    assert set(read_lock(home)) == {f"t{number}" for number in range(16)}
    with ThreadPoolExecutor(8) as pool:
        tries = [pool.submit(import_tool, source, home=home, rename="one") for _ in range(8)]
        refused = [each.exception() for each in tries]
    assert sum(each is None for each in refused) == 1
    assert all(isinstance(each, SharingError) for each in refused if each is not None)


def test_what_a_killed_import_left_is_swept(home: ForgeHome, make_tool: MakeTool) -> None:
    old, new = home.ensure(".staging-old"), home.ensure(".staging-new")
    os.utime(old, (0, 0))
    import_tool(str(make_tool()), home=home)
    assert not old.exists() and new.exists()


def test_drift_is_named(home: ForgeHome, make_tool: MakeTool) -> None:
    source = str(make_tool())
    for name in ("a", "b", "c", "d"):
        import_tool(source, home=home, rename=name)
    assert verify_tools(home) == []
    tools = home.path / "tools"
    (tools / "b" / "greet.py").chmod(0o700)
    shutil.rmtree(tools / "c")
    (tools / "d" / "link").symlink_to("/etc/passwd")
    locked = read_lock(home)
    assert verify_tools(home) == [
        Drift(name="b", expected=locked["b"].digest, found=read_folder(tools / "b").digest),
        Drift(name="c", expected=locked["c"].digest, found=MISSING),
        Drift(name="d", expected=locked["d"].digest, found="unreadable"),
    ]
    assert verify_tools(home)[0].text.startswith("b: changed since it was imported")


def test_a_zip_without_modes_warns_of_a_missing_exec_bit(home: ForgeHome, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, text in (
            ("tool.yaml", "name: a\ndescription: d\nversion: '1'\nentrypoint: run\n"),
            ("run", "#!/bin/sh\n"),
        ):
            info = zipfile.ZipInfo(name)
            info.create_system = 0
            archive.writestr(info, text)
    assert any("exec bit" in warning for warning in import_tool(str(tmp_path / "a.zip"), home=home).warnings)
