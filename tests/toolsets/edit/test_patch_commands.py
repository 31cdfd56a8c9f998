"""Patches inside shell commands: three forms are a patch, everything else stays a command."""

from __future__ import annotations

from tests.tables import table

from golem_forge.toolsets.edit.patch import PatchCommand, is_bare_patch, rebase_patch, split_patch_command

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+it's $HOME `x` \\n\n*** End Patch\n"
PLAIN = "*** Begin Patch\n*** Add File: a.txt\n+a\n*** End Patch\n"


@table(
    ("cmd", "directory"),
    [
        (f"apply_patch <<'EOF'\n{PATCH}EOF", ""),
        (f"\n  apply_patch <<'EOF'\n{PATCH}EOF\n\n", ""),
        (f'apply_patch <<"PATCH"\n{PATCH}PATCH\n', ""),
        (f"cd sub && apply_patch <<'EOF'\n{PATCH}EOF\n", "sub"),
        (f"cd sub&&apply_patch<<'EOF'\n{PATCH}EOF\n", "sub"),
        (f"cd 'a b/c' && apply_patch <<'EOF'\n{PATCH}EOF\n", "a b/c"),
        (f"cd \"/workspace/a b\" && apply_patch <<'EOF'\n{PATCH}EOF\n", "/workspace/a b"),
        (f"cd ../x-y && apply_patch <<'EOF'\n{PATCH}EOF\n", "../x-y"),
    ],
)
def test_a_heredoc_is_a_patch(cmd: str, directory: str) -> None:
    assert split_patch_command(cmd) == PatchCommand(patch=PATCH, directory=directory)


def test_a_quoted_argument_is_a_patch() -> None:
    assert split_patch_command(f"apply_patch '{PLAIN}'") == PatchCommand(patch=PLAIN, directory="")
    quoted = PATCH.replace("'", "'\\''")
    assert split_patch_command(f"apply_patch '{quoted}'\n") == PatchCommand(patch=PATCH, directory="")


def test_an_unquoted_end_word_counts_only_where_the_shell_would_change_nothing() -> None:
    assert split_patch_command(f"apply_patch <<EOF\n{PLAIN}EOF") == PatchCommand(patch=PLAIN, directory="")
    assert split_patch_command(f"apply_patch <<EOF\n{PATCH}EOF") is None


@table(
    "cmd",
    [
        f"apply_patch <<'EOF'\n{PATCH}EOF\nls",
        f"apply_patch <<'EOF'\n{PATCH}EOF\n; ls",
        f"apply_patch <<'EOF'; ls\n{PATCH}EOF\n",
        f"apply_patch <<'EOF' | cat\n{PATCH}EOF\n",
        f"apply_patch <<'EOF' || true\n{PATCH}EOF\n",
        f"apply_patch <<'EOF' > log\n{PATCH}EOF\n",
        f"ls; apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd a; apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd a || apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd a\napply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd a && cd b && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd a b && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd $HOME && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd \"$HOME\" && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd ~/x && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd a* && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd - && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"cd '-' && apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"A=1 apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"sudo apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"apply_patch -v <<'EOF'\n{PATCH}EOF\n",
        f"apply_patch <<-'EOF'\n{PATCH}EOF\n",
        f"apply_patch <<'EOF'\n{PATCH}",
        f"apply_patch <<'EOF'\n{PATCH} EOF\n",
        f'apply_patch "{PLAIN}"',
        f"apply_patch '{PLAIN}' '{PLAIN}'",
        f"apply_patch '{PLAIN}'; ls",
        f"cd a && apply_patch '{PLAIN}'",
        "apply_patch",
        "apply_patch < file",
        "echo apply_patch",
        "",
    ],
)
def test_anything_else_is_a_command(cmd: str) -> None:
    assert split_patch_command(cmd) is None


def test_the_first_end_word_ends_it_as_in_a_shell() -> None:
    assert split_patch_command(f"apply_patch <<'EOF'\n+a\nEOF\n{PLAIN}EOF\n") is None


@table("cmd", [PATCH, f"\n {PLAIN}", f"<<'EOF'\n{PLAIN}EOF\n"])
def test_a_bare_patch_is_noticed(cmd: str) -> None:
    assert is_bare_patch(cmd)


@table("cmd", ["", "ls", f"echo x\n{PLAIN}", f"apply_patch <<'EOF'\n{PLAIN}EOF"])
def test_what_is_no_bare_patch(cmd: str) -> None:
    assert not is_bare_patch(cmd)


def test_relative_paths_are_rebased_and_nothing_else() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: a.txt\n+*** Add File: a.txt\n*** Delete File: /workspace/b\n"
        "*** Update File: ../c\n*** Move to: d/e\n@@ *** Update File: c\n x\n-*** Delete File: c\n*** End Patch\n"
    )
    assert rebase_patch(patch, "sub") == (
        "*** Begin Patch\n*** Add File: sub/a.txt\n+*** Add File: a.txt\n*** Delete File: /workspace/b\n"
        "*** Update File: sub/../c\n*** Move to: sub/d/e\n@@ *** Update File: c\n x\n-*** Delete File: c\n"
        "*** End Patch\n"
    )
    assert rebase_patch(patch, "") == rebase_patch(patch, ".") == patch
    assert rebase_patch("no patch", "sub") == "no patch"


def test_what_might_be_a_marker_is_rebased_too_rather_than_meaning_another_file() -> None:
    patch = "*** Begin Patch\n*** Update File: a\n@@\n-x\n *** Delete File: b\n*** End Patch\n"
    assert " *** Delete File: sub/b\n" in rebase_patch(patch, "sub")
