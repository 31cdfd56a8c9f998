"""Whether an environment takes anything out of the tool's own folder: other files there are another one then."""

from __future__ import annotations

from tests.tables import table

from golem_forge.usertools.build.requirements import ScriptBlock, local_sources
from golem_forge.usertools.folder import FolderFiles


def folder(**files: str) -> FolderFiles:
    return FolderFiles({name.replace("_", "."): text.encode() for name, text in files.items()}, frozenset())


def said(*dependencies: str, lock: str = "", uv: bool = False, beside: str = "a wheel") -> str:
    block = ScriptBlock(text="", dependencies=dependencies, uv={"find-links": ["."]} if uv else {})
    return local_sources("x.py", block, lock.encode(), folder(x_py="print()", tool_yaml="name: x", a_whl=beside))


REGISTRY = '[[package]]\nname = "a"\nsource = { registry = "https://pypi.org/simple" }\n'


@table("lock", ["", REGISTRY + 'wheels = [{ url = "https://files.example/a.whl", size = 1 }]\n'])
def test_what_comes_from_elsewhere_is_shared(lock: str) -> None:
    assert said("requests>=2", "rich[all]; python_version > '3'", lock=lock) == ""


@table("dependency", ["a @ file:///forge/tool/a.whl", "./a.whl", "a@./a.whl"])
def test_a_requirement_that_names_a_place(dependency: str) -> None:
    assert said(dependency) != said(dependency, beside="another wheel") != ""


def test_words_to_uv_may_name_places() -> None:
    assert said("a", uv=True) != said("a", uv=True, beside="another wheel")


@table(
    "lock",
    [
        '[[package]]\nname = "a"\nsource = { path = "a.whl" }\n',
        '[[package]]\nname = "a"\nsource = { "pa\\u0074h" = "a.whl" }\n',
        '[[package]]\nname = "a"\nsource = { registry = "./" }\n',
        REGISTRY + 'wheels = [{ url = "file:///forge/tool/a.whl" }]\n',
        "no lock at all",
        "# " + "x" * (4 << 20),
    ],
)
def test_a_lock_that_names_files_or_cannot_be_read(lock: str) -> None:
    assert said("a", lock=lock) != said("a", lock=lock, beside="another wheel")


def test_the_script_and_the_manifest_are_no_packages() -> None:
    one = ScriptBlock(text="", dependencies=("a @ ./a.whl",))
    first, second = (folder(x_py=code, tool_yaml=code, a_whl="w") for code in ("1", "2"))
    assert local_sources("x.py", one, b"", first) == local_sources("x.py", one, b"", second)
