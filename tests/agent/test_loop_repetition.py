"""W30: the same call with the same failure, again and again."""

from __future__ import annotations

from typing import Any

from golem_forge.agent.loop import Repetition
from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.results import ToolResult


def failed(args: Any = None, *, error: str = "no such file", tool: str = "read_file") -> Outcome:
    call = ToolCall(tool, args if args is not None else {"path": "a"})
    return Outcome(call=call, tool=tool, status=Status.EXECUTION_FAILED, error=error)


def worked(args: Any = None) -> Outcome:
    call = ToolCall("read_file", args or {"path": "a"})
    return Outcome(call=call, tool="read_file", status=Status.SUCCESS, result=ToolResult({"kind": "text"}, "ok"))


def other(status: Status) -> Outcome:
    return Outcome(call=ToolCall("read_file", {"path": "a"}), tool="read_file", status=status, error="x")


def notes(*turns: list[Outcome]) -> tuple[list[list[str]], str]:
    repetition = Repetition()
    return [repetition.note_all(turn) for turn in turns], repetition.end_reason


def test_w30_three_times_adds_the_note_and_five_end_the_run_naming_the_tool() -> None:
    said, over = notes(*([failed()] for _ in range(4)))
    assert said == [[""], [""], ["This exact call has failed 3 times."], ["This exact call has failed 4 times."]]
    assert over == ""
    said, over = notes(*([failed()] for _ in range(5)))
    assert "'read_file'" in over and "5 times" in over


def test_w30_also_within_one_turn_and_beside_other_calls() -> None:
    said, over = notes([failed() for _ in range(3)])
    assert said == [["", "", "This exact call has failed 3 times."]]
    _, over = notes(*([failed(), failed({"path": "b"})] for _ in range(5)))
    assert over


def test_arguments_are_the_same_as_json_or_as_a_mapping_in_any_order() -> None:
    said, _ = notes([failed({"a": 1, "b": 2})], [failed('{"b": 2, "a": 1}')], [failed({"b": 2, "a": 1})])
    assert said[-1] == ["This exact call has failed 3 times."]
    said, _ = notes([failed("{broken")], [failed("{broken")], [failed("{broken")])
    assert said[-1] == ["This exact call has failed 3 times."]


def test_what_breaks_the_row() -> None:
    for between in ([worked()], [failed(error="another")], [failed({"path": "b"})], [failed(tool="grep_files")]):
        said, _ = notes([failed()], [failed()], between, [failed()])
        assert said[-1] == [""], between


def test_a_handle_in_the_text_does_not_make_another_failure() -> None:
    texts = ["cut, handle=out_0123456789ab", "cut, handle=out_ffffffffffff", "cut, handle=out_000000000000"]
    said, _ = notes(*([failed(error=text)] for text in texts))
    assert said[-1] == ["This exact call has failed 3 times."]


def test_calls_that_were_not_tried_count_for_nothing() -> None:
    said, over = notes(*([other(Status.SKIPPED), other(Status.INTERRUPTED)] for _ in range(6)))
    assert over == "" and not any(note for turn in said for note in turn)
    said, _ = notes([failed()], [failed()], [other(Status.SKIPPED)], [failed()])
    assert said[-1] == ["This exact call has failed 3 times."]


def command(seconds: float, **value: Any) -> Outcome:
    result = ToolResult({"kind": "exec.result", **value}, f"Wall time: {seconds:.3f} s\nOutput (2 bytes):\nok")
    return Outcome(
        call=ToolCall("exec_command", {"cmd": "make"}), tool="exec_command", status=Status.SUCCESS, result=result
    )


def test_the_same_success_ends_the_run_too_however_long_it_took() -> None:
    said, over = notes(*([command(0.1 * at, exit_code=0)] for at in range(20)))
    assert [at for at, turn in enumerate(said, 1) if turn[0]] == [10]
    assert over == "'exec_command' was called 20 times in a row with the same arguments and the same result: " + (
        "stopped as repetition"
    )
    _, over = notes(*([command(0.1, exit_code=0)] if at % 15 else [failed()] for at in range(60)))
    assert over == "", "something else was done in between"


def test_waiting_for_a_command_that_still_runs_is_no_repetition() -> None:
    said, over = notes(*([command(10, session_id=1)] for _ in range(60)))
    assert over == "" and not any(turn[0] for turn in said)


def with_value(text: str, content: tuple[dict[str, Any], ...] = (), **value: Any) -> Outcome:
    result = ToolResult({"kind": "json", **value}, text, content=content)
    return Outcome(call=ToolCall("shop__cart", {}), tool="shop__cart", status=Status.SUCCESS, result=result)


def test_a_session_of_another_kind_is_no_command_that_runs() -> None:
    _, over = notes(*([with_value("empty", session_id="s1")] for _ in range(20)))
    assert "'shop__cart' was called 20 times in a row" in over


def test_another_picture_is_another_result() -> None:
    pictures = [({"type": "image", "data": f"{at:04}", "mimeType": "image/png"},) for at in range(30)]
    _, over = notes(*([with_value("a picture", each)] for each in pictures))
    assert over == ""
    _, over = notes(*([with_value("a picture", pictures[0])] for _ in range(20)))
    assert over
