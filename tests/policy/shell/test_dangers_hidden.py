"""Ways to hide a command from the detector: every text here runs its last word's harm in a real shell.

The texts are only ever given to the analysers.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.tables import table

from golem_forge.policy.shell.dangers import find_dangers
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.policy.shell.patterns import matches_lenient

Secret = Callable[[str], bool]

WIPES_ROOT = [
    # taken for a comment, arithmetic or a heredoc
    "#\r'\nrm -rf /\n#'", "ls #\r'\nrm -rf /\n: '", "(( x<<E ))\nrm -rf /\nE", "echo $(( x<<E ))\nrm -rf /\nE",
    "echo $[ x<<E ]\nrm -rf /\nE", "for ((i=1<<E;i<2;i++)); do\nrm -rf /\ndone\nE", "(( 2 # 1 )); rm -rf /",
    "cat <<E\nE)\n'\nE\nrm -rf /\n: 'x'", "cat <<E\nE\r\n'\nE\nrm -rf /\n: 'x'",
    "cat <<E\nfoo\\\nE\n'\nE\nrm -rf /\n: '",
    "cat <<'E\\'\nE\n'\nE\\\nrm -rf /\n: '", "cat <<$(x)\n'\n$(x)\nrm -rf /\n: '", "cat <<`x`\n'\n`x`\nrm -rf /\n: '",
    "cat <<E\rF\n'\nE\rF\nrm -rf /\n: '", "bash -c $'cat <<E\\nE)\\n\\'\\nE\\nrm -rf /\\n: \\'x\\''",
    "echo $[1]; rm -rf /",
    "echo \"$(( 1 # 2 ))\"; rm -rf /", "cat <<\"E\\\"\"\n'\nE\"\nrm -rf /\n: '",
    # wrappers
    "csh -c 'rm -rf /'", "tcsh -fc 'rm -rf /'", "ksh93 -c 'rm -rf /'", "nu -c 'rm -rf /'", "xvfb-run -a rm -rf /",
    "rlwrap rm -rf /", "cpulimit -l 50 -- rm -rf /", "numactl -N 0 rm -rf /", "direnv exec . rm -rf /",
    "systemd-run --user rm -rf /", "hyperfine -p 'rm -rf /' ls", "ip netns exec n rm -rf /", "sg g -c 'rm -rf /'",
    "nix develop -c rm -rf /", "nix-shell --run 'rm -rf /'", "split --filter='rm -rf /' a", "eval 'x=1; rm -rf /'",
    "env a.b=1 rm -rf /", "env -- a-b=1 c/d=2 rm -rf /", "env -S 'bash -c \"rm -rf /\"'", "env -S bash -c 'rm -rf /'",
    "env -S'a.b=1 rm -rf /'", "env -iS '-u X rm -rf /'", "env -S 'rm\\_-rf\\_/'", "env --split 'rm -rf' /",
    "env -C / rm -rf .", "env --chdir=/ rm -rf ./*", "env -C / sh -c 'rm -rf .'", "sudo -D / rm -rf .",
    "unshare --wd=/ rm -rf .", "chroot /mnt rm -rf .", "env -C / env -C usr rm -rf .",
    "ssh h <<E\nrm -rf /\nE", "ssh h sh <<E\nrm -rf /\nE", "ssh h <<< 'rm -rf /'", "ssh h -p 22 rm -rf /",
    "ssh -p 22 h -v -- rm -rf /", "echo 'rm -rf /' | ssh h", "bash -c sh <<E\nrm -rf /\nE", "eval sh <<< 'rm -rf /'",
    "parallel --retries 3 rm -rf ::: /", "parallel --retries 3 --nice 5 rm -rf /", "sudo --unknown 3 rm -rf /",
    "xargs --unknown 3 rm -rf /", "env --unknown x rm -rf /", "nice --unknown 3 rm -rf /",
    "bash <(echo 'rm -rf /')", ". <(echo 'rm -rf /')", "source <(printf 'rm -rf /')", "bash < <(echo 'rm -rf /')",
    "sudo bash <(cat <<E\nrm -rf /\nE\n)", "bash --rcfile <(echo 'rm -rf /') -i",
    "bash -c \"$(cat <<E\nrm -rf /\nE\n)\"",
    "eval \"$(cat <<E\nrm -rf /\nE\n)\"", "$(cat <<E\nrm -rf /\nE\n)", "bash /dev/fd/3 3<<< 'rm -rf /'",
    ". /proc/self/fd/3 3<<< 'rm -rf /'",
    # find
    "find / -exec /bin/rm -rf {} +", "find -O3 / -delete", "find -D x / -delete", "find -- / -delete",
    "cd / && find -delete", "cd / && find -name x -delete", "find / -exec sh -c 'rm -rf \"$1\"' _ {} \\;",
    "find -H -O2 /usr -delete", "env -C / find -delete", "find / ! -name x -delete", "rm -rf /proc/self/root/",
]  # fmt: skip

WIPES_DEVICE = [
    "sort -o /dev/sda f", "sort f -o/dev/sda", "sort --output=/dev/sda f", "curl -o /dev/sda u", "curl -so/dev/sda u",
    "curl --output /dev/sda u", "wget -O /dev/sda u", "wget -qO/dev/sda u", "wget --output-document=/dev/sda u",
    "tar cf /dev/sda x", "tar -cf /dev/sda x", "tar -c -f /dev/sda x", "tar cbf 20 /dev/sda x",
    "tar --create --file=/dev/sda x", "cp --target-dir=/dev/sda x", "cp -t/dev/sda x", "cp x /dev/sda -S y",
    "echo x > /d*/sda", "echo x > /de[v]/sda", "echo x > /de[^x]/sda", "echo x > /*/sda", "echo x > /dev/sd?",
    "echo x > /dev/stdx", "echo x > /{dev,tmp}/sda", "uniq f /dev/sda", "echo x > /proc/self/root/dev/sda",
    "env -C /dev tee sda",
]  # fmt: skip


def ids(text: str, secret: Secret) -> set[str]:
    return {danger.id for danger in find_dangers(text, is_secret=secret)}


@table("text", WIPES_ROOT)
def test_a30_wipe_root_is_blocked_however_hidden(text: str, secret: Secret) -> None:
    assert "wipe_root" in ids(text, secret)


@table("text", WIPES_DEVICE)
def test_a30_wipe_device_is_blocked_however_written(text: str, secret: Secret) -> None:
    assert "wipe_device" in ids(text, secret)


@table("text", [text for text in WIPES_ROOT if "rm" in text])
def test_a31_a_rule_that_blocks_rm_sees_it_too(text: str) -> None:
    assert matches_lenient(("rm",), find_commands(text))


@table(
    "text",
    [
        "cat > notes.md <<E\nnever type\nrm -rf /\nE", "cat > f <<'E'\nit's\nrm -rf /\nE\nls", "echo 'a\nrm -rf /\nb'",
        "git commit -m \"$(cat <<'E'\nit's:\nrm -rf /\nE\n)\"", "echo $((1 + 2))\necho 'x\nrm -rf /'",
        "sort -k 2 f", "curl -o out u", "tar xf /dev/st0", "tar cf x.tar /dev/sda", "uniq /dev/sda",
        "cp /dev/sda x", "sort -o out /dev/sda", "echo x > /dev/stdout", "env -C /tmp/x rm -rf .", "find -delete",
        "find . -exec /bin/rm {} +", "find -D -delete", "find /tmp/x -- -delete", "ssh h -p 22 ls", "bash <(echo ls)",
        "(( a < 3 )) && ls", "sudo -n echo rm -rf /", "git commit -m \"$(cat <<E\nrm -rf /\nE\n)\"",
    ],
)  # fmt: skip
def test_a30_data_and_ordinary_work_are_not_blocked(text: str, secret: Secret) -> None:
    assert not ids(text, secret) & {"wipe_root", "wipe_device", "fork_bomb"}


@table("text", ["cat > notes.md <<E\nrm -rf x\nE", "echo 'a\nrm -rf x\nb'"])
def test_a_dangerous_line_asks_even_where_it_seems_data(text: str, secret: Secret) -> None:
    """The second reading, line by line, has its say about what asks, not about what is blocked."""
    found = find_commands(text)
    assert found.certain
    assert ("rm", "-rf", "x") not in [command.words for command in found.commands]
    assert "rm_force" in ids(text, secret)


@table(
    ("text", "certain"),
    [
        ("ls\nls", True), ("cat <<E\na\nE", True), ("cat <<'E F'\na\nE F", True), ("echo $((1+2))", True),
        ("ls\rls", False), ("echo 'a", False), ("echo `ls", False), ("cat <<E\na", False), ("cat <<$E\na\n$E", False),
        ("cat <<E\na\\\nE\nE", False), ("(( 1 # 2 ))", False), ("cat <<E $(ls\n)\nE\n", False),
        ("echo $(cat <<E\na\nE)", False),
    ],
)  # fmt: skip
def test_certainty(text: str, certain: bool) -> None:
    assert find_commands(text).certain is certain


@table(
    "text",
    [
        "setarch -R rm -rf x", "setarch aarch64 -R rm -rf x", "linux64 rm -rf x", "runuser -u root rm -rf x",
        "runuser --user root -- rm -rf x", "/lib/ld-linux-aarch64.so.1 /bin/rm -rf x",
        "/lib64/ld-linux-x86-64.so.2 --library-path /lib /bin/rm -rf x", "ld.so rm -rf x",
        "/lib/ld-musl-x86_64.so.1 rm -rf x", "git submodule foreach rm -rf x", "git bisect run rm -rf x",
        "git submodule foreach --recursive 'rm -rf x'", "git rebase --exec 'rm -rf x' main",
        "git -C d rebase -i --ex='rm -rf x'", "git rebase -x 'rm -rf x'", "git rebase -x'rm -rf x'",
        "start-stop-daemon --start --exec /bin/rm -- -rf x", "start-stop-daemon -S -x /bin/rm -- -rf x",
        "script -qc 'rm -rf x' /dev/null", "unshare -r rm -rf x", "chroot . rm -rf x",
    ],
)  # fmt: skip
def test_programs_that_run_another_are_looked_into(text: str, secret: Secret) -> None:
    assert "rm_force" in ids(text, secret)


@table("text", ["git log run rm -rf", "git commit -m 'foreach rm -rf x'", "ld -o a a.o", "git log -x"])
def test_words_that_only_look_like_it_are_not(text: str, secret: Secret) -> None:
    assert "rm_force" not in ids(text, secret)
