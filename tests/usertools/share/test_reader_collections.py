"""Collections: listed without trust, imported one by one, and refused where the list and the files disagree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import SharingError
from golem_forge.usertools.folder import read_folder
from golem_forge.usertools.share import GitAccess, read_lock
from golem_forge.usertools.share.importer import import_tool
from golem_forge.usertools.share.reader import CollectionEntry, browse_collection

FILE = GitAccess(transports=frozenset({"file"}))
MakeTool = Callable[..., Path]


@pytest.fixture
def collection(make_tool: MakeTool, repository: Any) -> Any:
    """Two tools in a repository with far more files than one tool may have."""
    rows = []
    for name, about in (("greet", "Greets a person"), ("wave", "Waves at a Person from afar")):
        folder = make_tool(name, at=repository.folder / "all" / name)
        row = {"name": name, "description": about, "version": "1.2", "path": f"all/{name}"}
        rows.append(row | {"digest": read_folder(folder).digest})
    other = repository.folder / "other"
    other.mkdir()
    for number in range(300):
        (other / f"f{number}").write_text("x")
    repository.rows = rows
    write(repository, rows)
    return repository


def write(repository: Any, rows: object) -> None:
    (repository.folder / "forge-tools.json").write_text(json.dumps({"tools": rows}))


def test_it_is_listed_and_searched(home: ForgeHome, collection: Any) -> None:
    source = collection.source(collection.commit())
    for each in (source, str(collection.folder)):
        listing = browse_collection(each, home=home, access=FILE)
        assert [row.to_json() for row in listing.rows] == collection.rows and listing.problems == ()
        assert [row.name for row in browse_collection(each, "PERSON afar", home=home, access=FILE).rows] == ["wave"]
        assert browse_collection(each, "nothing", home=home, access=FILE).rows == ()


def test_one_is_imported_and_the_lock_names_its_own_place(home: ForgeHome, collection: Any) -> None:
    commit = collection.commit()
    imported = import_tool(collection.source(commit), home=home, pick="wave", access=FILE)
    assert imported.digest == collection.rows[1]["digest"]
    assert read_lock(home)["wave"].source == collection.source(commit, "all/wave")
    import_tool(str(collection.folder), home=home, pick="greet", rename="hello")
    assert read_lock(home)["hello"].source == str(collection.folder / "all" / "greet")


def test_without_a_name_it_says_what_there_is(home: ForgeHome, collection: Any) -> None:
    for source in (collection.source(collection.commit()), str(collection.folder)):
        with pytest.raises(SharingError, match="name the tool to import after it: greet, wave"):
            import_tool(source, home=home, access=FILE)
        with pytest.raises(SharingError, match="did you mean 'greet'"):
            import_tool(source, home=home, pick="gret", access=FILE)


def test_other_files_than_listed_are_refused(home: ForgeHome, collection: Any, leftovers: Any) -> None:
    (collection.folder / "all" / "wave" / "greet.py").write_text("print('swapped')\n")
    for source in (collection.source(collection.commit()), str(collection.folder)):
        with pytest.raises(SharingError, match="digest"):
            import_tool(source, home=home, pick="wave", access=FILE)
    assert leftovers() == []


def test_a_tool_under_a_false_name_is_refused(home: ForgeHome, collection: Any, leftovers: Any) -> None:
    write(collection, [collection.rows[0] | {"name": "harmless"}])
    with pytest.raises(SharingError, match=r"calls it 'harmless', its tool\.yaml 'greet'"):
        import_tool(str(collection.folder), home=home, pick="harmless")
    assert leftovers() == []


@table(
    "change",
    [
        {"path": "../up"},
        {"path": "/etc"},
        {"path": ""},
        {"name": "a/b"},
        {"name": 5},
        {"description": "x" * 1025},
        {"digest": "sha256:short"},
        {"version": None},
    ],
)
def test_a_bad_entry_hides_no_other(home: ForgeHome, collection: Any, change: dict[str, Any]) -> None:
    write(collection, ["no object", collection.rows[0] | change, *collection.rows[1:], collection.rows[1]])
    listing = browse_collection(str(collection.folder), home=home)
    assert [row.name for row in listing.rows] == ["wave"]
    assert [problem.partition(":")[0] for problem in listing.problems] == ["forge-tools.json"] * 3
    assert "tools[1]" in listing.problems[1] and "listed twice" in listing.problems[2]


def test_words_of_strangers_are_made_visible(home: ForgeHome, collection: Any) -> None:
    write(collection, [collection.rows[0] | {"description": "a\x1b[2J\u202eb\nc", "version": "1\x07"}])
    row = browse_collection(str(collection.folder), home=home).rows[0]
    assert row == CollectionEntry(**collection.rows[0] | {"description": "a\\x1b[2J\\u202eb c", "version": "1\\x07"})


@table("text", ["{", "[]", '{"tools": {}}', "[" * 100_000, '{"tools": [' + "1," * 10_001 + "1]}"])
def test_a_list_that_is_none(home: ForgeHome, collection: Any, text: str) -> None:
    (collection.folder / "forge-tools.json").write_text(text)
    with pytest.raises(SharingError, match=r"forge-tools\.json"):
        browse_collection(str(collection.folder), home=home)


def test_a_list_without_end_or_behind_a_link(home: ForgeHome, tmp_path: Path, collection: Any) -> None:
    index = collection.folder / "forge-tools.json"
    index.write_bytes(b" " * (5 << 20))
    for source in (collection.source(collection.commit()), str(collection.folder)):
        with pytest.raises(SharingError, match="larger than"):
            browse_collection(source, home=home, access=FILE)
    index.rename(tmp_path / "index")
    index.symlink_to(tmp_path / "index")
    for source in (collection.source(collection.commit()), str(collection.folder)):
        with pytest.raises(ForgeError):
            browse_collection(source, home=home, access=FILE)


def test_a_path_through_a_link_is_refused(
    home: ForgeHome, tmp_path: Path, make_tool: MakeTool, collection: Any
) -> None:
    make_tool("greet", at=tmp_path / "private" / "greet")
    (collection.folder / "way").symlink_to(tmp_path / "private")
    write(collection, [collection.rows[0] | {"path": "way/greet"}])
    with pytest.raises(SharingError, match="no folder"):
        import_tool(str(collection.folder), home=home, pick="greet")


def test_no_collection(home: ForgeHome, make_tool: MakeTool) -> None:
    with pytest.raises(SharingError, match="not a collection"):
        browse_collection(str(make_tool()), home=home)
