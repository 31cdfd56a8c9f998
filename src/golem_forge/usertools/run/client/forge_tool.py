"""For tools that list other tools under `calls`: ask Forge to run one of them.

    from forge_tool import CallFailed, call, call_json

    text = call("read_file", path="/workspace/notes.md")

`call` gives the result's text and raises CallFailed for whatever is no success; `call_json` gives the whole outcome
and leaves the judgement to you. Every call is judged and approved by itself, and ends with this tool at the latest.
"""

import json
import os
import socket

_LONGEST = 1 << 20
_LONGEST_PATH = 100
NOBODY = 3
"""Exit code where Forge does not answer: nothing was run, as after a denial."""


class CallFailed(Exception):
    """A call that did not succeed; `exit_code` is what `forge call` would have exited with."""

    def __init__(self, status: str, text: str, exit_code: int) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text
        self.exit_code = exit_code


def call(name: str, /, **arguments: object) -> str:
    """The text of the result. Raises CallFailed."""
    outcome = call_json(name, **arguments)
    if outcome["status"] != "success":
        raise CallFailed(outcome["status"], outcome["text"], outcome["exitCode"])
    text: str = outcome["text"]
    return text


def call_json(name: str, /, **arguments: object) -> dict:  # type: ignore[type-arg]
    """What became of it, with `status`, `text`, `value` and `exitCode` among the rest. Raises CallFailed only where
    Forge gives no outcome."""
    answer = ask({"name": name, "args": arguments, "json": True})
    outcome = answer.get("outcome")
    if not isinstance(outcome, dict):
        raise CallFailed(answer["status"], answer["stderr"].strip(), answer["exit"])
    return {**outcome, "exitCode": answer["exit"]}


def ask(request: dict) -> dict:  # type: ignore[type-arg]
    """One request, one answer. Raises CallFailed if there is nobody to ask."""
    place, token = os.environ.get("FORGE_SOCKET", ""), os.environ.get("FORGE_CALL_TOKEN", "")
    if not place:
        raise CallFailed("policy_denied", "this tool calls no others: list them under `calls` in its tool.yaml", NOBODY)
    try:
        line = json.dumps({"token": token, **request}).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise CallFailed("input_invalid", f"the arguments are no JSON: {error}", 2) from None
    if len(line) > _LONGEST:
        raise CallFailed("input_invalid", "a call has at most 1 MiB of arguments", 2)
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            _connect(wire, place)
            wire.sendall(line)
            with wire.makefile("rb") as file:
                said = file.read()
        answer = json.loads(said)
    except (OSError, ValueError):
        raise CallFailed(
            "policy_denied", "Forge does not answer any more: no further call is possible", NOBODY
        ) from None
    if not isinstance(answer, dict):
        raise CallFailed("policy_denied", "Forge gave no answer", NOBODY)
    return answer


def _connect(wire: socket.socket, place: str) -> None:
    if len(os.fsencode(place)) <= _LONGEST_PATH:
        wire.connect(place)
        return
    directory = os.open(os.path.dirname(place), os.O_PATH | os.O_DIRECTORY)
    try:  # the address of a socket has room for little more than a hundred bytes
        wire.connect(f"/proc/self/fd/{directory}/{os.path.basename(place)}")
    finally:
        os.close(directory)
