"""Starts one Python tool: waits on standard input, a socket, for an order, then becomes what `python SCRIPT` would be.

Runs inside the walls, ahead of its call, so it imports only what every interpreter has loaded already. An order is
eight bytes of length and a marshalled `(script, argv, environment, standard input or None, further sys.path)`; a
socket that ends before a whole one came ends this program without a word. Threat: a tool that behaves otherwise when
started ahead than when it was tested. So names, paths, descriptors and streams are left as Python itself leaves them,
and a traceback begins with the tool. What can still be told is time, the command line the kernel shows, and that the
tool's first frame has frames below it.

A tool without dependencies reads no bytecode that lies beside a source (`-X pycache_prefix`), but for that of the
standard library, which every other Python on this machine reads too: without it `import argparse, json` takes 130 ms of
processor time instead of 30.
"""

_given = list(globals())
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _main() -> None:
    import marshal
    import posix
    import sys

    own_file, names = __file__, globals()

    def read(size: int) -> bytes:
        pieces = []
        while size:
            try:
                piece = posix.read(0, min(size, 1 << 20))
            except (OSError, KeyboardInterrupt):
                piece = b""
            if not piece:
                posix._exit(0)
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def take_environment(changes: dict[bytes, bytes]) -> None:
        loaded = sys.modules.get("os")
        for name, value in changes.items():
            posix.putenv(name, value)
            posix.environ[name] = value  # what `os.environ` is made from when `os` is imported
            if loaded is not None:
                loaded.environ[loaded.fsdecode(name)] = loaded.fsdecode(value)
        if b"TZ" in changes:
            sys.modules["time"].tzset()

    def take_input(content: "bytes | None") -> None:
        if content:
            descriptor = posix.memfd_create("stdin", posix.MFD_CLOEXEC)
            rest = memoryview(content)
            while rest:
                rest = rest[posix.write(descriptor, rest) :]
            posix.lseek(descriptor, 0, 0)
        else:
            descriptor = posix.open("/dev/null", posix.O_RDONLY | posix.O_CLOEXEC)
        posix.dup2(descriptor, 0)
        posix.close(descriptor)
        # The old stream remembers what it was opened on: a socket, which cannot be rewound.
        streams: Any = sys.modules["_io"]
        old = sys.stdin
        buffer = streams.open(0, "rb", -1, None, None, None, False)
        buffer.raw.name = "<stdin>"
        stream = streams.TextIOWrapper(buffer, old.encoding, old.errors, "\n", old.line_buffering)
        stream.mode = "r"
        sys.stdin = sys.__stdin__ = stream  # type: ignore[misc]

    def take_names(script: str, argv: list[str], further: list[str]) -> None:
        for name in [name for name in names if name not in names["_given"] and name != "_given"]:
            del names[name]
        del names["_given"]
        names["__doc__"] = None
        names["__file__"] = script
        names["__loader__"] = type(names["__loader__"])("__main__", script)
        sys.argv[:] = [script, *argv]
        sys.orig_argv[:] = [*sys.orig_argv[: sys.orig_argv.index(own_file)], script, *argv]
        if sys.path[:1] == [own_file.rpartition("/")[0]]:  # else the interpreter was told to add no such place
            sys.path[0] = script.rpartition("/")[0]
        sys.path += further
        if own_file in sys.path_importer_cache:
            sys.path_importer_cache[script] = sys.path_importer_cache.pop(own_file)

    def read_bytecode_of_library() -> None:
        importing: Any = sys.modules["_frozen_importlib_external"]
        elsewhere, library = importing.cache_from_source, f"{getattr(sys, '_stdlib_dir', None)}/"
        ending = f".{sys.implementation.cache_tag}.pyc"

        def cache_from_source(path: str, *given: "Any", **named: "Any") -> str:
            folder, _, name = path.rpartition("/")
            is_of_library = path.startswith(library) and path.endswith(".py") and "/site-packages/" not in path
            if given or named or not is_of_library:
                return str(elsewhere(path, *given, **named))
            return f"{folder}/__pycache__/{name[:-3]}{ending}"

        if sys.pycache_prefix and not sys.flags.optimize:
            importing.cache_from_source = cache_from_source

    def without_ours(trace: "Any") -> "Any":
        while trace is not None and trace.tb_frame.f_code.co_filename == own_file:
            trace = trace.tb_next
        return trace

    def show_failure(kind: "Any", error: "Any", trace: "Any") -> "Any":
        """Called by Python itself, in place of the hook it found; whatever that does is done with the tool's trace."""
        sys.excepthook = hook
        error.__traceback__ = sys.last_traceback = without_ours(trace)
        return hook(kind, error, error.__traceback__)

    read_bytecode_of_library()
    compile("", "", "exec")  # the first one prepares what all others use, which takes longer than a small tool runs
    script, argv, changes, content, further = marshal.loads(read(int.from_bytes(read(8), "big")))  # noqa: S302 - ours
    take_environment(changes)
    take_input(content)
    take_names(script, argv, further)
    del argv, changes, content, further
    try:
        with sys.modules["_io"].open(script, "rb") as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        del file
        exec(code, names)  # noqa: S102 - a tool's code, inside its walls, is what this is for
    except SystemExit:
        raise
    except BaseException:
        hook: Any = getattr(sys, "excepthook", None)
        if hook is not None:
            sys.excepthook = show_failure
        raise


_main()
