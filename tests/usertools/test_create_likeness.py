"""Duplicates: like another tool, or another tool."""

from __future__ import annotations

from tests.tables import table

from golem_forge.usertools.create import Language, NewTool, find_identical, find_similar, scaffold

GIT = {"git-summarize": "Summarizes git commit history for a given time period"}


def test_nearly_the_same_words_are_similar() -> None:
    assert find_similar("git-summary", "Summarizes git commit history for a time period", GIT) == ("git-summarize",)
    assert find_similar("weather", "Tells the weather of tomorrow", GIT) == ()


def test_the_line_is_at_one_half() -> None:
    others = {"beta": "red green"}
    assert find_similar("beta2", "red green", others) == ("beta",)  # 2 of 4
    assert find_similar("beta2", "red green blue", others) == ()  # 2 of 5


def test_short_and_empty_words_say_nothing() -> None:
    assert find_similar("a1", "the tool for it", {"b2": "this tool with an id"}) == ()
    assert find_similar("x", "Count WORDS, quickly!", {"y": "the words_count: quickly"}) == ("y",)


def test_at_most_three_best_first_then_by_name() -> None:
    others = {
        "z": "red green blue white",
        "d": "red green blue",
        "c": "red green blue",
        "b": "red green blue black",
        "a": "red green",
        "own": "red green blue",
    }
    assert find_similar("own", "red green blue", others) == ("c", "d", "b")  # itself is none of them
    assert find_similar("xx", "red green blue", others) == ("c", "d", "b")


def files(name: str, **more: object) -> dict[str, bytes]:
    return scaffold(NewTool.read({"name": name, "description": "Does it", "source": "print(1)\n", **more}))


def test_a_folder_under_another_name_is_a_twin() -> None:
    first = {
        "tool.yaml": b"# made by hand\nname: first\ndescription: d\nversion: 1\nentrypoint: run.sh\n",
        "run.sh": b"ls\n",
    }
    second = {**first, "tool.yaml": first["tool.yaml"].replace(b"name: first", b'name: "second"  # here')}
    assert find_identical(second, "second", [("first", first)]) == "first"
    assert find_identical(second, "second", [("second", second)]) == ""
    for changed in (
        {**first, "run.sh": b"ls -l\n"},
        {**first, "more.txt": b""},
        {"tool.yaml": first["tool.yaml"], "go.sh": b"ls\n"},
        {**first, "tool.yaml": first["tool.yaml"].replace(b"description: d", b"description: e")},
    ):
        assert find_identical(second, "second", [("first", changed)]) == ""


def test_a_source_called_after_its_tool_is_no_difference() -> None:
    assert find_identical(files("b"), "b", [("c", files("c", source="print(2)\n")), ("a", files("a"))]) == "a"
    assert find_identical(files("b", version="2"), "b", [("a", files("a"))]) == ""
    assert find_identical(files("b", language="shell"), "b", [("a", files("a"))]) == ""


@table("language", list(Language))
def test_two_templates_are_two_beginnings(language: Language) -> None:
    one, other = (files(name, source="", language=language) for name in ("a", "b"))
    assert find_identical(other, "b", [("a", one)]) == ""
