"""Names of user tools."""

from __future__ import annotations

from tests.tables import table

from golem_forge.usertools.diagnostics import RESERVED_NAMES, TOOL_NAME, is_reserved, name_problem


@table("name", ["a", "Z9", "a-b_1", "a_b_c", "x" * 64, "a_", "a-"])
def test_names_that_can_be_used(name: str) -> None:
    assert name_problem(name) == ""
    assert TOOL_NAME.match(name)


@table(
    "name",
    ["", ".", "..", "a/b", "a b", "ünï", "aü", "-rf", "_a", "1a", "x" * 65, "a__b", "__", "a\n", "a\0", "٣a", "a٣"],
)
def test_names_that_cannot_be_used_are_told_the_rule(name: str) -> None:
    problem = name_problem(name)
    assert problem.endswith(": use letters, digits, '-' and '_', starting with a letter, at most 64, no '__'")
    assert problem.startswith("invalid tool name '")
    assert not TOOL_NAME.match(name)


def test_a_name_is_shown_harmless_and_short() -> None:
    assert "invalid tool name 'a\\x1b[2J'" in name_problem("a\x1b[2J")
    assert len(name_problem("x" * 100_000)) < 300
    assert "\n" not in name_problem("a\nforge: all is well")


def test_reserved_names_are_reserved_in_any_case() -> None:
    assert {"create_custom_tool", "run_custom_tool", "exec_command", "write_stdin", "apply_patch"} == RESERVED_NAMES
    assert is_reserved("Exec_Command")
    assert not is_reserved("read_file")
