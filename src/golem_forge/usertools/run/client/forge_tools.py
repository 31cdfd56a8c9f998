"""The tools of Forge as functions, for programs (`run_code`) and for tools that list others under `calls`.

    from forge_tools import read_file, grep_files, map, answer

Every tool that may be called here is a function of keyword arguments; `help()` lists them, `help("read_file")` tells
about one. Tools of an MCP server are `forge_tools.SERVER.TOOL`. `search("words")` finds functions, `call("name", …)`
reaches any name, `map(function, items)` makes many calls at once, `answer(value)` gives one value as the result.

A function gives the tool's value: text as str, else what its JSON says; what is very large, and images, as a
ResultHandle. A call that fails raises ToolError, one that was denied ToolDenied. Each is judged and approved by itself.
"""

import json as _json  # a tool may be called `json`: every name here that a tool may have is private
import os as _os
import sys as _sys

from forge_tool import CallFailed as _CallFailed  # type: ignore[import-not-found]  # beside it, inside the walls
from forge_tool import ask as _ask

TYPE_CHECKING = False
if TYPE_CHECKING:  # the real one takes longer to import than a small program runs
    from typing import Any
del TYPE_CHECKING

__all__ = ["ResultHandle", "ToolDenied", "ToolError", "answer", "call", "help", "map", "search"]
"""Of tools with these names only `call` reaches them."""

_DENIALS = ("approval_denied", "policy_denied", "sandbox_denied")
_MOST_AT_ONCE = 16
_LONGEST_LIST = 500
_MOST_FRAMES = 10
_builtin_map = map


class ToolError(Exception):
    """A call that did not succeed: `tool`, `status`, `code` and `text` say what became of it."""

    def __init__(self, tool: "Any", status: "Any", code: "Any", text: "Any") -> None:
        super().__init__(f"{tool}: {status}: {text}")
        self.tool = tool
        self.status = status
        self.code = code
        self.text = text


class ToolDenied(ToolError):
    """Nobody allowed the call: it did not run. The same call is denied again, without a question."""


class ResultHandle:
    """Something too large to be given at once, or no text: `handle`, `mime` and `size` in bytes."""

    def __init__(self, handle: "Any", mime: "Any", size: "Any") -> None:
        self.handle = handle
        self.mime = mime
        self.size = size

    def read(self, start: "Any" = 0, end: "Any" = None) -> "Any":
        """The bytes from `start` to `end`, at most 8 MiB at once."""
        import binascii

        said = _request({"op": "read", "handle": self.handle, "start": start, "end": end}, "ResultHandle.read")
        return binascii.a2b_base64(said["data"])

    def __repr__(self) -> "Any":
        return f"ResultHandle({self.handle!r}, {self.mime!r}, {self.size} bytes)"


class _Function:
    """One tool. Its documentation and its parameters are asked for when somebody looks at them."""

    def __init__(self, name: "Any", described: "Any" = None) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self._known = described

    @property
    def _described(self) -> "Any":
        if self._known is None:
            self._known = _request({"op": "describe", "name": self.__name__}, self.__name__)["tool"]
        return self._known

    @property
    def __doc__(self) -> "Any":  # type: ignore[override]
        return _text_about(self._described)

    @property
    def __signature__(self) -> "Any":
        import inspect

        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(name, kind, default=empty if must else schema.get("default"), annotation=hint)
                for name, schema, must, hint in _parameters(self._described)
                if name.isidentifier()
            ]
        )

    def __call__(self, *values: "Any", **arguments: "Any") -> "Any":
        if values:
            names = [name for name, *_ in _parameters(self._described)]
            if len(values) > len(names):
                raise TypeError(f"{self.__name__}() takes {len(names)} arguments, and {len(values)} were given")
            for name, value in zip(names, values):  # noqa: B905 - checked above
                if name in arguments:
                    raise TypeError(f"{self.__name__}() got two values for {name!r}")
                arguments[name] = value
        return _call(self.__name__, arguments)

    def __repr__(self) -> "Any":
        about = f": {_first_line(self._known['description'])}" if self._known else ""
        return f"<tool {self.__name__}{about}>"


class _Server:
    """The tools of one MCP server."""

    def __init__(self, name: "Any", tools: "Any") -> None:
        self._name = name
        self._tools = tools

    def __getattr__(self, name: "Any") -> "Any":
        found = _named(name, self._tools)
        if found is None:
            raise AttributeError(
                f"server {self._name!r} has no tool {name!r}; it has: {', '.join(sorted(self._tools))}"
            )
        function = self.__dict__[name] = _Function(self._tools[found])
        return function

    def __dir__(self) -> "Any":
        return sorted(self._tools)

    def __repr__(self) -> "Any":
        return f"<tools of {self._name}: {', '.join(sorted(self._tools))}>"


def call(name: "Any", /, **arguments: "Any") -> "Any":
    """Calls the tool of this name, whatever it is called."""
    return _call(name, arguments)


def map(function: "Any", items: "Any", at_once: "Any" = 8) -> "Any":
    """`[function(item) for item in items]`, `at_once` of them at a time (at most 16), in the order of the items. An
    item that is a dict gives a tool its arguments by name. Raises what the first item that failed raised, after all
    ended."""
    import threading

    items = list(items)
    results = [None] * len(items)
    failures = {}
    numbers = iter(range(len(items)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            item = items[number]
            try:
                named = isinstance(function, _Function) and isinstance(item, dict)
                results[number] = function(**item) if named else function(item)
            except BaseException as error:
                failures[number] = error

    workers = [threading.Thread(target=work) for _ in range(max(1, min(at_once, _MOST_AT_ONCE, len(items))))]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    if failures:
        raise failures[min(failures)]
    return results


def search(query: "Any", limit: "Any" = 5) -> "Any":
    """The tools that fit these words best, as functions; also those that are not listed anywhere."""
    found = _request({"op": "search", "query": str(query), "limit": limit}, "search")["tools"]
    return [_Function(each["name"], each) for each in found]


def answer(value: "Any") -> "Any":
    """The result of this program, beside what it prints: one value that JSON can say. A later one replaces it. Pictures
    and files in it go with the result."""
    value = _json.loads(_json.dumps(value, default=_plain))
    if "FORGE_TOOL_NAME" not in _os.environ:
        _request({"op": "answer", "answer": value}, "answer")
        return
    print(_json.dumps(value, ensure_ascii=False))  # a tool's result is what it prints


def help(tool: "Any" = None) -> "Any":
    """Prints what there is to call, or what one tool does and takes."""
    if tool is None:
        names, servers = _listed()
        own = sorted(set(names) - {name for tools in servers.values() for name in tools.values()})
        lines = own[:_LONGEST_LIST] + ([f"… and {len(own) - _LONGEST_LIST} more"] if len(own) > _LONGEST_LIST else [])
        lines += [f"{server}.{name}" for server, tools in sorted(servers.items()) for name in sorted(tools)]
        print("\n".join([*lines[: 2 * _LONGEST_LIST], 'help("NAME") tells about one; search("words") finds more.']))
        return
    function = tool if isinstance(tool, _Function) else _Function(str(tool))
    print(function.__doc__)


def _plain(value: "Any") -> "Any":
    if isinstance(value, ResultHandle):
        return {"handle": value.handle, "mime": value.mime, "size": value.size}
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _call(name: "Any", arguments: "Any") -> "Any":
    said = _request({"name": name, "args": arguments, "value": True}, name)
    for note in said.get("notes", ()):
        print(note, file=_sys.stderr)
    if "handle" in said:
        return ResultHandle(said["handle"], said["mime"], said["size"])
    if "parts" not in said:
        return said.get("value")
    parts = [part["text"] if "text" in part else ResultHandle(**part["handle"]) for part in said["parts"]]
    return parts[0] if len(parts) == 1 else parts


def _request(request: "Any", tool: "Any") -> "Any":
    try:
        said = _ask(request)
    except _CallFailed as error:
        said = {"status": error.status, "stderr": error.text}
    status = said.get("status")
    if status == "success":
        return said
    text = str(said.get("stderr", "")).strip()
    prefix = f"forge: {status}: "
    kind = ToolDenied if status in _DENIALS else ToolError
    raise kind(tool, status, said.get("code", ""), text[len(prefix) :] if text.startswith(prefix) else text)


_list: "list[Any]" = []


def _listed() -> "Any":
    """(names, {server: {its name of a tool: name}}), asked for once."""
    if not _list:
        said = _request({"op": "tools"}, "forge_tools")
        _list.append((said["names"], said["servers"]))
    return _list[0]


def _named(name: "Any", known: "Any") -> "Any":
    """The name as it is, or the only one that has other signs where a Python name has `_`."""
    if name in known:
        return name
    same = [each for each in known if "".join(c if c.isalnum() else "_" for c in each) == name]
    return same[0] if len(same) == 1 else None


def __getattr__(name: "Any") -> "Any":
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in _attributes:
        _attributes[name] = _found(name)
    return _attributes[name]


_attributes: "dict[str, Any]" = {}
"""Functions and servers by the names a program used: what a function knows of its tool is asked for once."""


def _found(name: "Any") -> "Any":
    names, servers = _listed()
    found = _named(name, names)
    if found is not None:
        return _Function(found)
    server = _named(name, servers)
    if server is not None:
        return _Server(server, servers[server])
    raise AttributeError(f"there is no tool {name!r} here; help() lists them, search({name!r}) finds others")


def __dir__() -> "Any":
    names, servers = _listed()
    return sorted({*__all__, *names, *servers})


_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


def _parameters(described: "Any") -> "Any":
    """(name, schema, required, type), those that are required first."""
    schema = described.get("parameters") or {}
    required = schema.get("required") or ()
    found = [
        (name, each if isinstance(each, dict) else {}, name in required)
        for name, each in (schema.get("properties") or {}).items()
    ]
    found.sort(key=lambda each: not each[2])
    kinds = [each[1].get("type") for each in found]
    return [(*each, _TYPES.get(kind if isinstance(kind, str) else "")) for each, kind in zip(found, kinds)]  # noqa: B905


def _text_about(described: "Any") -> "Any":
    names = [name if must else f"{name}={schema.get('default')!r}" for name, schema, must, _ in _parameters(described)]
    lines = [f"{described['name']}({', '.join(names)})", "", described["description"], ""]
    for name, schema, must, _ in _parameters(described):
        kind = schema.get("type") or "any"
        lines.append(f"  {name} ({kind}{'' if must else ', optional'}): {schema.get('description', '')}".rstrip(": "))
    return "\n".join([*lines, "", f"Returns {described['returns']}."])


def _first_line(text: "Any") -> "Any":
    return text.strip().split("\n", 1)[0][:200]


def _show_failure(kind: "Any", error: "Any", trace: "Any") -> "Any":
    """The last frames of the program's own code: those of this module say nothing to whoever wrote it."""
    import traceback

    lines = traceback.TracebackException(kind, error, trace)
    own = [frame for frame in lines.stack if frame.filename != __file__]
    lines.stack = traceback.StackSummary.from_list(own[-_MOST_FRAMES:])
    print("".join(lines.format(chain=False)), end="", file=_sys.stderr)
    if isinstance(error, ImportError) and error.name in (__name__, "tools"):
        print('help() lists the tools that may be called here, search("words") finds one', file=_sys.stderr)


if "FORGE_TOOL_NAME" not in _os.environ:
    _sys.excepthook = _show_failure
