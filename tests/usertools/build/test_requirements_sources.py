"""Where dependencies come from: hosts that are named, directories that are shown, credentials that go nowhere else."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.policy.rules.book import RuleBook, host_rule_for
from golem_forge.sandbox.network.registries import without_credentials
from golem_forge.sandbox.walls.model import HostGrant
from golem_forge.tools.context import no_host_rule
from golem_forge.usertools.build.languages import requires_modules
from golem_forge.usertools.build.requirements import go_sources, python_sources, script_block
from golem_forge.usertools.diagnostics import Unusable

from .packages import Index

PYPI = ("pypi.org", "files.pythonhosted.org")


def hosts(environ: dict[str, str], block: str = 'dependencies = ["a"]', lock: bytes = b"") -> tuple[str, ...]:
    lines = "".join(f"# {line}\n" for line in block.splitlines())
    found = script_block(f"# /// script\n{lines}# ///\n".encode(), "x.py")
    assert found is not None
    return python_sources(environ, found, lock).hosts


@table(
    ("environ", "expected"),
    [
        ({}, PYPI),
        ({"UV_DEFAULT_INDEX": "https://own.test/simple"}, ("own.test",)),
        ({"UV_INDEX_URL": "http://own.test:8080/simple"}, ("own.test:8080",)),
        ({"UV_INDEX": "extra=https://a.test/s https://b.test:444/s"}, (*PYPI, "a.test", "b.test:444")),
        ({"UV_EXTRA_INDEX_URL": "https://u:canary@a.test/s"}, (*PYPI, "a.test")),
        ({"UV_FIND_LINKS": "https://a.test/l,/nowhere"}, (*PYPI, "a.test")),
        ({"UV_NO_INDEX": "1", "UV_FIND_LINKS": "https://a.test/l", "UV_INDEX": "https://b.test"}, ("a.test",)),
        ({"UV_NO_INDEX": "0"}, PYPI),
    ],
)
def test_the_persons_own_indexes_count(environ: dict[str, str], expected: tuple[str, ...]) -> None:
    assert hosts(environ) == expected


def test_what_the_script_and_its_lock_name_is_named_to_the_person() -> None:
    block = 'dependencies = ["a @ https://w.test/a.whl"]\n[[tool.uv.index]]\nname = "x"\nurl = "https://i.test/s"'
    assert hosts({}, block) == (*PYPI, "w.test", "i.test")
    lock = b'source = { registry = "https://pypi.org/simple" }\nurl = "https://cdn.test/x.whl"'
    assert hosts({"UV_INDEX": "https://not-asked.test/s"}, lock=lock) == (*PYPI, "cdn.test")


def test_only_hosts_of_the_persons_settings_may_be_private(tmp_path: Path) -> None:
    found = script_block(b'# /// script\n# dependencies = ["a @ http://10.0.0.1/a.whl"]\n# ///\n', "x.py")
    assert found is not None
    sources = python_sources({"UV_DEFAULT_INDEX": "https://[fd00::1]:8443/s"}, found, b"")
    assert sources.hosts == ("[fd00::1]:8443", "10.0.0.1:80")
    expected = (HostGrant("fd00::1", 8443, True), HostGrant("10.0.0.1", 80, False))
    assert sources.grants(sources.hosts, no_host_rule) == expected


def test_credentials_by_name_are_not_handed_on(tmp_path: Path) -> None:
    """A script could give its own index that name."""
    found = script_block(b'# /// script\n# dependencies = ["a"]\n# ///\n', "x.py")
    assert found is not None
    environ = {"UV_INDEX_CORP_PASSWORD": "canary", "UV_INDEX": f"corp={tmp_path}", "OTHER": "canary"}
    sources = python_sources(environ, found, b"")
    assert sources.env == {"UV_INDEX": "corp=/forge/links/0"}
    assert [one.host for one in sources.shown] == [str(tmp_path)]
    assert without_credentials("see https://me:canary@a.test/s, ok") == "see https://a.test/s, ok"


def test_go_asks_its_proxy_and_never_a_repository(tmp_path: Path) -> None:
    assert go_sources({}).hosts == ("proxy.golang.org", "sum.golang.org")
    own = go_sources({"GOPROXY": f"https://p.test|file://{tmp_path},direct", "GOSUMDB": "off"})
    assert own.hosts == ("p.test",)
    assert own.env["GOPROXY"] == "https://p.test,file:///forge/links/0"
    assert go_sources({"GOPROXY": "direct"}).env["GOPROXY"] == "off"


@table(
    ("text", "expected"),
    [
        ("module x\n", False),
        ("module x\n\nrequire a.test/b v1.0.0\n", True),
        ("module x\n\nrequire (\n\ta.test/b v1.0.0 // indirect\n)\n", True),
        ("module x\n\nrequire (\n\t// a.test/b v1.0.0\n)\n", False),
        ("module x // require a v1\n", False),
        ("module require.test/x\n", False),
    ],
)
def test_requirements_of_a_go_mod(text: str, expected: bool) -> None:
    assert requires_modules(text.encode()) is expected


def greeting_index(root: Path, context: ssl.SSLContext | None = None) -> Iterator[Index]:
    made = Index(root, context)
    made.wheel("greetlib", {"greetlib.py": "word = 'fetched'\n"})
    yield made
    made.close()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    yield from greeting_index(tmp_path / "served")


CODE = "# /// script\n# dependencies = ['greetlib']\n{}# ///\nimport greetlib\nprint(greetlib.word)\n"


def from_index(works: Any, url: str) -> Any:
    """A script that names its index itself."""
    return works.made({"x.py": CODE.format(f"# [[tool.uv.index]]\n# url = '{url}'\n# default = true\n")})


async def test_a_script_leads_the_build_to_a_private_address_only_by_a_rule_of_the_persons(
    works: Any, index: Index
) -> None:
    """Not by consent to that name: the refusal says what is private, and the line it shows is the one that helps."""
    made = from_index(works, f"http://{index.host}/simple")
    needs = works.builder.needs(made.entry, made.files)
    assert index.host in needs.hosts
    rules = RuleBook(works.home)
    works.host_rule = host_rule_for(rules, "", "main")
    with pytest.raises(Unusable) as caught:
        await works.build(made, hosts=(index.host,))
    assert index.asked == []
    first, second = caught.value.message.splitlines()[:2]
    assert first == f"Blocked by the sandbox: {index.host} (resolves to a private address)."
    assert second.startswith("To allow it, add to rules.yaml in FORGE_HOME, under `rules:`: - {host: ")
    works.home.ensure()
    works.home.rules.write_text(f"version: 1\nrules:\n  {second.partition('`rules:`: ')[2]}\n")
    rules.expire()
    assert (await works.run(await works.build(made, hosts=(index.host,)))).text == "fetched\n"


async def test_a_host_that_nobody_was_asked_about_is_named(works: Any, index: Index) -> None:
    made = from_index(works, f"http://{index.host}/simple")
    with pytest.raises(Unusable) as caught:
        await works.build(made, hosts=("other.test",))
    first, second = caught.value.message.splitlines()[:2]
    assert first == f"Blocked by the sandbox: {index.host} (not among the approved hosts)."
    assert "PIP_INDEX_URL" in second


def test_settings_for_pip_count_where_uv_has_none() -> None:
    both = {
        "PIP_INDEX_URL": "https://p.test/s",
        "UV_INDEX_URL": "https://u.test/s",
        "PIP_EXTRA_INDEX_URL": "https://e.test/",
    }
    assert hosts(both) == ("u.test", "e.test")
    assert hosts({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "https://a.test/l  https://b.test/l"}) == ("a.test", "b.test")


async def test_the_persons_own_authority_reaches_the_build_and_its_key_does_not(
    works: Any, secure_index: Index, authority: Path
) -> None:
    made = works.made({"x.py": CODE.format("")})
    agreed = (secure_index.host,)
    works.environ["UV_DEFAULT_INDEX"] = f"https://{secure_index.host}/simple"
    with pytest.raises(Unusable, match=r"(?i)certificate"):
        await works.build(made, hosts=agreed)
    works.environ["SSL_CERT_FILE"] = str(authority.parent / "none.pem")
    with pytest.raises(Unusable, match="SSL_CERT_FILE names no certificate that can be read"):
        await works.build(made, hosts=agreed)
    works.environ["SSL_CERT_FILE"] = str(authority)
    assert (await works.run(await works.build(made, hosts=agreed))).text == "fetched\n"
    shown = [Path(one.host) for job in works.started for one in job.shown if one.inner == "/forge/certificates"]
    text = "".join(file.read_text() for directory in shown for file in directory.iterdir())
    assert "BEGIN CERTIFICATE" in text and "PRIVATE" not in text


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A certificate and its key in one file, as people keep them; `server.pem` beside it is signed with them."""
    for name, words in {
        "own": ("/CN=Own", "-addext", "keyUsage=critical,keyCertSign"),
        "server": ("/CN=s", "-CA", "own.pem", "-CAkey", "own.pem", "-addext", "subjectAltName=IP:127.0.0.1",
                   "-addext", "basicConstraints=critical,CA:FALSE"),
    }.items():  # fmt: skip
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key", "-out", "cert")
        request = ("openssl", "req", "-x509", *key, "-days", "2", "-subj", *words)
        subprocess.run(request, cwd=tmp_path, check=True, capture_output=True)
        (tmp_path / f"{name}.pem").write_text((tmp_path / "key").read_text() + (tmp_path / "cert").read_text())
    return tmp_path / "own.pem"


@pytest.fixture
def secure_index(authority: Path, tmp_path: Path) -> Iterator[Index]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.with_name("server.pem"))
    yield from greeting_index(tmp_path / "served", context)
