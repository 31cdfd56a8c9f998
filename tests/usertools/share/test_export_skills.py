"""Agent Skills: an export passes the reference validator and comes back equal; an import grants nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import skills_ref
from tests.tables import table

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import SharingError
from golem_forge.usertools.folder import FolderFiles, read_folder
from golem_forge.usertools.manifest import BooleanFlags, Parameter, ParameterType, ToolManifest
from golem_forge.usertools.manifest.tool_yaml import read_manifest
from golem_forge.usertools.share import read_lock
from golem_forge.usertools.share.export import export_skill, export_tool, skill_name
from golem_forge.usertools.share.importer import import_tool, prepare_update, read_skill

MakeTool = Callable[..., Path]


def manifest_of(folder: Path) -> ToolManifest:
    return read_manifest((folder / "tool.yaml").read_bytes(), folder=folder.name)


def test_an_exported_skill_is_valid_and_returns_with_an_equal_digest(
    home: ForgeHome, tmp_path: Path, make_tool: MakeTool
) -> None:
    folder = make_tool("Git_Summarize")
    files = read_folder(folder)
    skill = export_skill(manifest_of(folder), files, tmp_path / "skills")
    assert skill == tmp_path / "skills" / "git-summarize"
    assert skills_ref.validate(skill) == []
    read = skills_ref.read_properties(skill)
    assert (read.name, read.description) == ("git-summarize", "Greets a person by name")
    assert read.metadata == {
        "forge-name": "Git_Summarize",
        "forge-version": "1.2",
        "forge-digest": files.digest,
    }
    imported = import_tool(str(skill), home=home)
    assert (imported.name, imported.digest, imported.warnings) == ("Git_Summarize", files.digest, ())
    assert read_folder(home.path / "tools" / "Git_Summarize").digest == files.digest


def test_the_body_says_usage_parameters_and_how_to_run(tmp_path: Path, make_tool: MakeTool) -> None:
    folder = make_tool()
    level = Parameter(
        name="level", type=ParameterType.INTEGER, description="How\nloud", has_default=True, default=1, enum=(1, 2)
    )
    manifest = manifest_of(folder)
    manifest = replace(manifest, parameters=(*manifest.parameters, level))
    body = (export_skill(manifest, read_folder(folder), tmp_path / "s") / "SKILL.md").read_text()
    for line in (
        "Say --who=NAME.",
        "- `who` (string, required): Whom to greet",
        "- `level` (integer, optional): How loud. One of: `1`, `2`. Default: `1`.",
        "`python3 scripts/greet.py`",
        "`forge call greet`",
    ):
        assert line in body


def test_the_body_says_how_a_flag_without_a_value_is_passed(tmp_path: Path, make_tool: MakeTool) -> None:
    folder = make_tool()
    manifest = manifest_of(folder)
    booleans = [
        Parameter(name=name, type=ParameterType.BOOLEAN, description="d", flag=flag)
        for name, flag in (("plain", None), ("short", BooleanFlags.SWITCH), ("both", BooleanFlags.PAIR))
    ]
    manifest = replace(manifest, parameters=(*manifest.parameters, *booleans))
    body = (export_skill(manifest, read_folder(folder), tmp_path / "s") / "SKILL.md").read_text()
    assert body.endswith("`--short` is true, nothing false. `--both` is true, `--no-both` false.\n")
    assert "`--plain`" not in body


@pytest.mark.parametrize(
    "description",
    [
        "--- not the end ---",
        'quotes " and \\ back',
        "ünï 日本 😀",
        "a: b # c",
        "x" * 1024,
        "yes",
        "\uffff odd",
        "{flow}",
    ],
)
@pytest.mark.parametrize("version", ["1.10", "--- x: 'y'"])
def test_any_words_make_valid_front_matter(tmp_path: Path, make_tool: MakeTool, description: str, version: str) -> None:
    folder = make_tool()
    manifest = replace(manifest_of(folder), description=description, version=version)
    skill = export_skill(manifest, read_folder(folder), tmp_path / "s")
    assert skills_ref.validate(skill) == []
    read = skills_ref.read_properties(skill)
    assert read.description == description and read.metadata["forge-version"] == version
    assert read_skill((skill / "SKILL.md").read_bytes()).digest == read_folder(folder).digest


@pytest.mark.parametrize(
    ("tool", "skill"),
    [("a", "a"), ("A_B", "a-b"), ("a-_b", "a-b"), ("a_-_b-", "a-b"), ("a_", "a"), ("x" * 64, "x" * 64), ("No", "no")],
)
def test_every_tool_name_gives_a_valid_skill_name(tmp_path: Path, make_tool: MakeTool, tool: str, skill: str) -> None:
    folder = make_tool(tool)
    assert skill_name(tool) == skill
    assert skills_ref.validate(export_skill(manifest_of(folder), read_folder(folder), tmp_path / "s")) == []


def test_a_skill_whose_files_were_changed_says_so(home: ForgeHome, tmp_path: Path, make_tool: MakeTool) -> None:
    folder = make_tool()
    skill = export_skill(manifest_of(folder), read_folder(folder), tmp_path / "s")
    (skill / "scripts" / "greet.py").write_text("print('other')\n")
    imported = import_tool(str(skill), home=home)
    assert any("forge-digest does not match" in warning for warning in imported.warnings)


def test_exporting_twice_is_the_same_and_never_changes_what_is_there(tmp_path: Path, make_tool: MakeTool) -> None:
    folder = make_tool()
    manifest, files = manifest_of(folder), read_folder(folder)
    once = read_folder(export_skill(manifest, files, tmp_path / "s")).digest
    assert read_folder(export_skill(manifest, files, tmp_path / "s")).digest == once
    other = FolderFiles({**files.files, "more": b""}, files.executable)
    with pytest.raises(SharingError, match="no unchanged export"):
        export_skill(manifest, other, tmp_path / "s")
    export_tool(files, "greet", tmp_path / "t")
    with pytest.raises(SharingError, match="no unchanged export"):
        export_tool(other, "greet", tmp_path / "t")
    assert read_folder(tmp_path / "s" / "greet").digest == once and len(list((tmp_path / "t").iterdir())) == 1


@pytest.fixture
def make_skill(tmp_path: Path) -> Callable[..., Path]:
    def make(matter: str, body: str = "Do this.\n", /, **scripts: str) -> Path:
        folder = tmp_path / "skill"
        (folder / "scripts").mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_bytes(f"---\n{matter}\n---\n{body}".encode())
        for name, text in scripts.items():
            (folder / "scripts" / name).write_text(text)
        return folder

    return make


MATTER = "name: pdf-tools\ndescription: >\n  Reads\n  PDF files\nlicense: MIT"
ONE = {"read.py": "print(1)\n"}


def test_a_foreign_skill_becomes_a_draft_that_asks_for_nothing(home: ForgeHome, make_skill: Any) -> None:
    skill = make_skill(f"{MATTER}\nallowed-tools: Bash(git:*) Read", "\n# PDF\n\nDo `x`.\r\n", **ONE)
    (skill / "references").mkdir()
    (skill / "references" / "more.md").write_text("more")
    imported = import_tool(str(skill), home=home)
    made = manifest_of(home.path / "tools" / "pdf-tools")
    assert made == ToolManifest(
        name="pdf-tools",
        description="Reads PDF files",
        version="1.0.0",
        entrypoint="read.py",
        usage="# PDF\n\nDo `x`.",
    )
    assert set(read_folder(home.path / "tools" / "pdf-tools").files) == {"tool.yaml", "read.py"}
    assert any("grants nothing" in each for each in imported.warnings)
    assert any("references/more.md" in each for each in imported.warnings)


def test_several_scripts_need_a_choice_which_an_update_keeps(home: ForgeHome, make_skill: Any) -> None:
    skill = make_skill(MATTER, **{"b.py": "", "a.sh": "", "lib.py": ""})
    with pytest.raises(SharingError, match=r"--entrypoint FILE: a\.sh, b\.py, lib\.py"):
        import_tool(str(skill), home=home)
    with pytest.raises(SharingError, match=r"no file 'c\.py'"):
        import_tool(str(skill), home=home, entrypoint="c.py")
    assert not read_lock(home)
    import_tool(str(skill), home=home, entrypoint="scripts/b.py")
    assert manifest_of(home.path / "tools" / "pdf-tools").entrypoint == "b.py"
    (skill / "scripts" / "lib.py").write_text("x = 1\n")
    update = prepare_update("pdf-tools", home=home)
    assert update.new.files["lib.py"] == b"x = 1\n" and update.new.files["tool.yaml"] == update.old.files["tool.yaml"]


def test_long_and_hidden_words_are_cut_and_shown(home: ForgeHome, make_skill: Any) -> None:
    skill = make_skill(f"name: x\ndescription: a\u202eb {'y' * 2000}", "é" * 9000 + "\u200b", **ONE)
    imported = import_tool(str(skill), home=home)
    made = manifest_of(home.path / "tools" / "x")
    assert made.description.startswith("a\\u202eb yyy") and len(made.description) == 1024
    assert made.usage == "é" * 4096
    assert len(imported.warnings) == 2


@pytest.mark.parametrize(
    ("name", "tool"),
    [("3d-model", "skill-3d-model"), ("ünï-tool", "uni-tool"), ("日本 x", "x"), ("a b__c", "a-b_c"), ("7", "skill-7")],
)
def test_a_name_is_made_valid(home: ForgeHome, make_skill: Any, name: str, tool: str) -> None:
    assert import_tool(str(make_skill(f"name: {name}\ndescription: d", **ONE)), home=home).name == tool


@pytest.mark.parametrize(
    ("matter", "says"),
    [
        ("description: d", "name: is missing"),
        ("name: x", "description: is missing"),
        ("name: [x]\ndescription: d", "name: is missing or not text"),
        ("name: x\nname: y\ndescription: d", "SKILL.md:3: key 'name' is already on line 2"),
        ("name: !!python/object:os.system x\ndescription: d", "tag"),
        ("name: 日本\ndescription: d", "--as NAME"),
        ("name: exec_command\ndescription: d", "is reserved"),
    ],
)
def test_front_matter_that_cannot_be_used(
    home: ForgeHome, make_skill: Any, leftovers: Any, matter: str, says: str
) -> None:
    from golem_forge.core.errors import ForgeError

    with pytest.raises(ForgeError) as refused:
        import_tool(str(make_skill(matter, **ONE)), home=home)
    assert says in refused.value.message and leftovers() == []


@table("text", [b"no front matter", b"---\nname: x\n", b"\xff\xfe", b"---\n" + b"a" * (2 << 20)])
def test_a_file_that_is_no_skill(text: bytes) -> None:
    with pytest.raises(SharingError, match=r"SKILL\.md"):
        read_skill(text)


def test_a_skill_without_scripts(home: ForgeHome, make_skill: Any) -> None:
    with pytest.raises(SharingError, match="no file in scripts/"):
        import_tool(str(make_skill(MATTER)), home=home)
