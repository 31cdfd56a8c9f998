"""`forge tools diff | log | undo`: what a tool was, what changed, and the way back; also when its folder is gone."""

from __future__ import annotations

import shutil

import pytest

from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.folder import read_folder
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.store.queries import Author, AuthorKind

MANIFEST = 'name: greet\ndescription: Greets a person by name\nversion: "1.0"\nentrypoint: greet.py\n'


class Tool:
    """The folder of `greet`, and what a session notes of it."""

    def __init__(self, shell) -> None:
        self.home = ForgeHome(shell.forge_home)
        self.folder = shell.forge_home / "tools" / "greet"
        self.folder.mkdir(parents=True)
        (self.folder / "tool.yaml").write_text(MANIFEST)

    @property
    def digest(self) -> str:
        return read_folder(self.folder).digest

    @property
    def bytes(self) -> bytes:
        return (self.folder / "greet.py").read_bytes()

    def write(self, text: str, author: Author | None = None) -> str:
        """One edit, seen as a session sees it."""
        (self.folder / "greet.py").write_text(text)
        found = read_folder(self.folder)
        ContentStore(self.home).put(found.files, executable=found.executable)
        book = ToolStore(self.home)
        book.record_version("greet", found.digest, author)
        book.close()
        return found.digest

    def trust(self, digest: str) -> None:
        book = ToolStore(self.home)
        book.trust("greet", digest, who="person")
        book.mark_tested("greet", digest)
        book.close()


@pytest.fixture
def tool(shell):
    return Tool(shell)


def test_undo_says_whether_what_came_back_is_active(inside, tool):
    trusted = tool.write("print('one')\n")
    tool.trust(trusted)
    edited = tool.write("print('two')\n")
    ended = inside("undo", "greet")
    assert ended.code == 0 and "It is active: exactly these files were trusted before." in ended.out
    assert inside("log", "greet", "--json").json["versions"][0]["trusted"] is True

    assert inside("undo", "greet", edited, "--yes").code == 0
    assert "retired" in inside("retire", "greet").out
    assert "forge tools restore greet" in inside("undo", "greet").out


def test_undo_twice_is_two_steps_back(inside, tool):
    first, second, third = (tool.write(f"print('{text}')\n") for text in ("one", "two", "three"))
    for digest in (second, first):
        assert inside("undo", "greet").code == 0 and tool.digest == digest
    ended = inside("undo", "greet")
    assert ended.code == 1 and "no earlier version" in ended.err and "forge tools undo greet DIGEST" in ended.err
    assert inside("undo", "greet", third[7:15]).code == 0 and tool.digest == third


def test_a_tool_in_use_gives_way_to_an_untrusted_version_only_after_a_yes(inside, tool):
    draft, trusted = tool.write("print('one')\n"), tool.write("print('two')\n")
    tool.trust(trusted)
    refused = inside("undo", "greet")
    assert refused.code == 3 and tool.digest == trusted
    assert f"version {draft[7:19]} is not trusted, and Forge cannot ask you here" in refused.err
    assert f"forge tools undo greet {draft[7:19]} --yes" in refused.err
    assert inside("undo", "greet", draft, "--yes").code == 0 and tool.digest == draft
    assert inside("undo", "greet", trusted).code == 0, "back to what was trusted needs no question"


def test_the_question_of_undo(shell, on_terminal):
    tool = Tool(shell)
    draft, trusted = tool.write("print('one')\n"), tool.write("print('two')\n")
    tool.trust(trusted)
    for typed, code, left in (("n", 3, trusted), ("y", 0, draft)):
        ended, screen = on_terminal(["tools", "undo", "greet"], (r"\[y/N\] ", typed))
        assert ended == code and f"Version {draft[7:19]} of 'greet' is not trusted" in screen
        assert tool.digest == left
    ended, screen = on_terminal(["tools", "undo", "greet", trusted])
    assert ended == 0 and tool.digest == trusted and "[y/N]" not in screen


def test_a_deleted_tool_comes_back(inside, tool):
    digest = tool.write("print('one')\n")
    (tool.folder / "greet.py").chmod(0o755)
    digest = tool.write("print('one')\n")
    shutil.rmtree(tool.folder)

    log = inside("log", "greet")
    assert log.code == 0 and digest[7:19] in log.out and "forge tools undo greet" in log.err
    assert inside("log", "greet", "--json").json["present"] is False
    gone = inside("diff", "greet")
    assert gone.code == 1 and "forge tools undo greet" in gone.err

    ended = inside("undo", "greet")
    assert ended.code == 0 and tool.digest == digest
    assert inside("remove", "greet", "--yes").code == 0 and not tool.folder.exists()
    assert inside("undo", "greet").code == 0 and tool.digest == digest


def test_diff_against_what_was_trusted_last(inside, tool):
    trusted = tool.write("print('one')\nprint('more')\n")
    tool.trust(trusted)
    same = inside("diff", "greet")
    assert same.code == 0 and "no difference" in same.out

    (tool.folder / "tool.yaml").write_text(MANIFEST.replace("1.0", "1.1") + "network: [example.test]\n")
    (tool.folder / "data.bin").write_bytes(b"\0\1")
    tool.write("print('two')\nprint('more')\n")
    ended = inside("diff", "greet")
    assert ended.code == 0
    assert f"from version {trusted[7:19]}, trusted last," in ended.out
    assert "version: 1.0 -> 1.1" in ended.out and "network: none -> example.test" in ended.out
    assert "--- a/greet.py\n+++ b/greet.py\n@@ -1,2 +1,2 @@\n-print('one')\n+print('two')\n print('more')" in ended.out
    assert "data.bin: binary, not shown: nothing -> sha256 " in ended.out
    assert "zones:" not in ended.out, "what did not change is left out"


def test_diff_between_two_versions(inside, tool):
    first, second = tool.write("print('one')\n"), tool.write("print('two')\n")
    tool.write("print('three')\n")
    code, out, _ = inside("diff", "greet", second[7:19], first[7:19])
    assert code == 0 and "-print('two')\n+print('one')" in out
    assert "-print('one')\n+print('three')" in inside("diff", "greet", first)[1]
    shutil.rmtree(tool.folder)
    assert inside("diff", "greet", first, second)[0] == 0


def test_diff_of_what_was_never_trusted_shows_everything(inside, tool):
    tool.write("print('one')\n")
    ended = inside("diff", "greet")
    assert ended.code == 0 and "no version was ever trusted" in ended.out
    assert "--- /dev/null\n+++ b/greet.py\n@@ -0,0 +1 @@\n+print('one')" in ended.out
    assert "network: none" in ended.out


def test_nothing_in_a_version_steers_the_terminal(inside, tool):
    tool.write("print('one')\n", Author(AuthorKind.IMPORT, source="x\x1b[2J\ny"))
    tool.trust(tool.digest)
    tool.write("print('\x1b[2J\u202e')\n")
    for words in (["diff", "greet"], ["log", "greet"]):
        ended = inside(*words)
        assert ended.code == 0
        assert "\x1b" not in ended.out + ended.err and "\u202e" not in ended.out + ended.err
    ended = inside("diff", "greet")
    assert r"\x1b[2J\u202e" in ended.out and "greet.py: 2 control or invisible characters" in ended.err


def test_a_folder_that_is_no_tool_any_more_has_a_past_too(inside, tool):
    digest = tool.write("print('one')\n")
    (tool.folder / "tool.yaml").write_text(MANIFEST + "timout: 5\n")
    code, _, err = inside("log", "greet")
    assert code == 0 and "manifest_invalid" in err and "did you mean 'timeout'?" in err
    assert "+timout: 5" in inside("diff", "greet", digest)[1]
    assert inside("undo", "greet")[0] == 0 and tool.digest == digest


def test_what_cannot_be_a_version_is_set_aside(shell, inside, tool):
    digest = tool.write("print('one')\n")
    (tool.folder / "link").symlink_to("/etc/hostname")
    diff = inside("diff", "greet", digest)
    assert diff.code == 1 and "symlink: link" in diff.err
    ended = inside("undo", "greet")
    assert ended.code == 0 and tool.digest == digest
    assert "they are in ~/.forge/state/set-aside/greet-" in ended.err
    (aside,) = (shell.forge_home / "state" / "set-aside").iterdir()
    assert (aside / "link").is_symlink() and (aside / "greet.py").exists()


@pytest.mark.parametrize("verb", ["diff", "log", "undo"])
def test_no_such_tool(inside, tool, verb):
    tool.write("print('one')\n")
    for name in ("gret", "../tools/greet", "", "."):
        code, out, err = inside(verb, name)
        assert code == 4 and "no user tool" in err and out == ""
    assert "did you mean 'greet'?" in inside(verb, "gret")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["undo", "greet", "zz"], "at least 6 hex digits"),
        (["undo", "greet", ""], "empty"),
        (["undo", "greet", "abcdef0123"], "has no version abcdef0123"),
        (["diff", "greet", "abcdef0123"], "has no version abcdef0123"),
        (["diff", "greet", "a", "b", "c"], "not more"),
        (["log", "greet", "--nonsense"], "unrecognized"),
        (["undo"], "required"),
    ],
)
def test_usage(inside, tool, words, said):
    tool.write("print('one')\n")
    before = tool.digest
    code, _, err = inside(*words)
    assert code == 2 and said in err
    assert tool.digest == before


def test_undo_of_a_first_version(inside, tool):
    tool.write("print('one')\n")
    code, _, err = inside("undo", "greet")
    assert code == 1 and "has no earlier version" in err
    again = inside("undo", "greet", tool.digest)
    assert again.code == 0 and "already" in again.out


def test_a_program_that_cannot_be_read_is_no_obstacle(shell, inside, tool):
    tool.write("print('one')\n")
    shell.write("forge.yaml", "nonsense: [\n")
    for verb in ("log", "diff"):
        assert inside(verb, "greet")[0] == 0


def test_the_log_says_which_version_each_one_was(inside, tool):
    tool.write("print('one')\n")
    (tool.folder / "tool.yaml").write_text(MANIFEST.replace("1.0", "2.0-beta"))
    tool.write("print('two')\n")
    (tool.folder / "tool.yaml").write_text("version: [")
    tool.write("print('three')\n")
    rows = inside("log", "greet").out.splitlines()
    assert [row.split()[1] for row in rows] == ["VERSION", "-", "2.0-beta", "1.0"]
    assert [row["version"] for row in inside("log", "greet", "--json").json["versions"]] == ["", "2.0-beta", "1.0"]
