"""Python packages for tests: wheels, source distributions, and an index of this machine that says what it was asked."""

from __future__ import annotations

import io
import json
import ssl
import tarfile
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from functools import partial
from hashlib import sha256, sha512
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


def wheel(name: str, files: Mapping[str, str]) -> bytes:
    info = f"{name}-1.0.dist-info"
    inside = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_hash(text)},{len(text.encode())}" for path, text in inside.items()]
    inside[f"{info}/RECORD"] = "\n".join((*lines, f"{info}/RECORD,,", ""))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in inside.items():
            archive.writestr(path, text)
    return made.getvalue()


def _hash(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


class Index:
    """`http://HOST/simple`, or https with a context; it serves what is below `root`."""

    def __init__(self, root: Path, context: ssl.SSLContext | None = None) -> None:
        self.root = root
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                asked.append(self.path)

            def end_headers(self) -> None:
                self.send_header("Cache-Control", "max-age=600")
                super().end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def wheel(self, name: str, files: Mapping[str, str]) -> None:
        (self._folder(name) / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, files))

    def sdist(self, name: str, files: Mapping[str, str]) -> None:
        inside = {**files, "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
        with tarfile.open(self._folder(name) / f"{name}-1.0.tar.gz", "w:gz") as archive:
            for path, text in inside.items():
                member = tarfile.TarInfo(f"{name}-1.0/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))

    def node_package(self, name: str, files: Mapping[str, str]) -> str:
        """Below `npm`; gives its integrity."""
        made = io.BytesIO()
        inside = {"package.json": json.dumps({"name": name, "version": "1.0.0"}), **files}
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for path, text in inside.items():
                member = tarfile.TarInfo(f"package/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        registry = self.root / "npm"
        (registry / "-").mkdir(parents=True, exist_ok=True)
        (registry / "-" / f"{name}-1.0.0.tgz").write_bytes(made.getvalue())
        integrity = f"sha512-{b64encode(sha512(made.getvalue()).digest()).decode()}"
        tarball = f"http://{self.host}/npm/-/{name}-1.0.0.tgz"
        version = {"name": name, "version": "1.0.0", "dist": {"tarball": tarball, "integrity": integrity}}
        document = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        (registry / name).write_text(json.dumps(document))
        return integrity

    def go_module(self, path: str, files: Mapping[str, str]) -> None:
        """Version v1.0.0, below `go`, as a module proxy serves it."""
        folder = self.root / "go" / path / "@v"
        folder.mkdir(parents=True)
        declared = f"module {path}\n\ngo 1.20\n"
        (folder / "list").write_text("v1.0.0\n")
        (folder / "v1.0.0.info").write_text(json.dumps({"Version": "v1.0.0", "Time": "2020-01-01T00:00:00Z"}))
        (folder / "v1.0.0.mod").write_text(declared)
        with zipfile.ZipFile(folder / "v1.0.0.zip", "w") as archive:
            for name, text in {"go.mod": declared, **files}.items():
                archive.writestr(f"{path}@v1.0.0/{name}", text)

    def downloads(self, ending: str) -> int:
        """How often a file with this ending was asked for."""
        return sum(path.endswith(ending) for path in self.asked)

    def _folder(self, project: str) -> Path:
        folder = self.root / "simple" / project
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
