"""The `forge` that a running tool finds on its PATH: `forge call`, and nothing else. Standard library only."""

import json
import os
import sys

from forge_tool import CallFailed, ask  # type: ignore[import-not-found]  # beside it, inside the walls

USAGE = """usage: forge call NAME [--param=value … | --args-json JSON] [--json]

Runs another tool that this one lists under `calls`. It is judged and approved by itself.

  --param=value     an argument of the tool (--flag, --no-flag; repeat for lists)
  --args-json JSON  all arguments as one JSON object; `-` reads it from standard input
  --json            the whole outcome as JSON

Exit: 0 success, 1 failed, 2 bad arguments, 3 denied, 4 no such tool, 124 timed out, 130 interrupted."""
PEOPLE_ONLY = ("--approval", "-a", "--program", "-p")


class UsageError(Exception):
    pass


def main(words: "list[str]") -> int:
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if words[:1] != ["call"]:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        request = parsed(words[1:])
        if request is None:
            print(USAGE)
            return 0
        answer = ask(request)
    except UsageError as error:
        print(f"forge call: {error}", file=sys.stderr)
        return 2
    except CallFailed as error:
        print(f"forge: {error}", file=sys.stderr)
        return int(error.exit_code)
    if request["json"] and "outcome" in answer:
        answer["stdout"], answer["stderr"] = json.dumps(answer["outcome"], ensure_ascii=False) + "\n", ""
    for stream, text in ((sys.stdout, answer["stdout"]), (sys.stderr, answer["stderr"])):
        stream.buffer.write(text.encode("utf-8", "backslashreplace"))
        stream.buffer.flush()
    code: int = answer["exit"]
    return code


def parsed(words: "list[str]") -> "dict[str, object] | None":
    """None: help was asked for."""
    name, as_json = "", False
    arguments: "str | None" = None  # noqa: UP037 - any Python may run this
    own: "list[str]" = []  # noqa: UP037
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word == "--":
            own += [word, *rest]
        elif word in ("-h", "--help"):
            return None
        elif word == "--json":
            as_json = True
        elif flag in PEOPLE_ONLY:
            raise UsageError(f"{flag} is for people: a tool does not choose how or where its calls are approved")
        elif flag == "--args-json":
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageError("--args-json needs a value")
            arguments = sys.stdin.read() if given == "-" else given
        elif not name and not word.startswith("-"):
            name = word
        else:
            own.append(word)
    if not name:
        raise UsageError("NAME is missing: forge call NAME [--param=value …]")
    if arguments is None:
        return {"name": name, "words": own, "json": as_json}
    if own:
        raise UsageError("give the arguments either as --args-json or as options, not both")
    return {"name": name, "args": arguments, "json": as_json}


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on: that is no news for standard error
        code = 1
    sys.exit(code)
