"""The prover: every row of the table, with what it allows and what it refuses (A27, A28)."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.policy.shell.prover import Proof, prove
from golem_forge.policy.shell.readonly_table import READ_ONLY_TABLE
from golem_forge.policy.shell.strict import CommandWorld, Opaque, Parsed, ProgramFile, parse_strict


def proof(text: str, world: CommandWorld, cwd: str = "/workspace") -> Proof:
    parsed = parse_strict(text)
    assert isinstance(parsed, Parsed), parsed
    return prove(parsed, world, cwd)


@table(
    "text",
    ["ls -1", "/bin/ls", "cat a | wc -l", "ls && pwd; echo 'hi there'", "echo '$HOME'", "find . -name x",
     'rg foo -g"*.py"', "sed -n 1,5p f", "uniq in", "echo 'rm -rf x'", "ls 2>/dev/null", "cd src && ls",
     'echo "rm -rf /"', "bash -lc 'ls && cat a'"],
)  # fmt: skip
def test_a27_runs_unasked(text: str, world: CommandWorld) -> None:
    assert proof(text, world).proven, proof(text, world).why


@table(
    "text",
    ["git stash", "git log --output=x", "git diff --no-index a b", "git diff --ext-diff", "egrep x f", "fgrep x f",
     "cargo check", "ls > out", "echo hi & echo bye", "(ls)", "echo $HOME", 'echo "\\$HOME"',
     "FOO=1 ls", "ls &&", "ls | | wc", "find . -del*", "rg -z x", "uniq in out", "sort -o v a",
     "bash -lc git status", "./bash -c ls", "echo HEAD~1", "cat /etc/passwd"],
)  # fmt: skip
def test_a28_asks(text: str, world: CommandWorld) -> None:
    parsed = parse_strict(text)
    assert isinstance(parsed, Opaque) or not prove(parsed, world, "/workspace").proven


def test_a28_operand_outside_every_zone_is_reported(world: CommandWorld) -> None:
    found = proof("cat a /etc/passwd", world)
    assert not found.proven
    assert [operand.virtual for operand in found.outside] == ["/etc/passwd"]
    assert [operand.virtual for operand in found.reads] == ["/workspace/a"]
    assert "/etc/passwd" in found.why


ALLOWED = {
    "ls": ["", "-1AaBCcdFGghiklmnopRrSstuXx a", "--all --almost-all --color --human-readable --recursive",
           "--reverse --directory --full-time a b", "--color=never", "--color=auto", "-- -x", "-"],
    "cat": ["-AbEensTtuv a", "a - b", "-- -n"],
    "rev": ["a"],
    "nl": ["-ba a", "-b a -n ln -s x -v 1 -w 3 f"],
    "paste": ["-d, a b", "-sz a", "-sd , a"],
    "head": ["-n 5 a", "-n5 a", "-5 a", "-c 3 -qv a", "--lines=3 a", "--lines 3 a", "--bytes 9", "-qn3"],
    "tail": ["-n +5 a", "-20 a", "--bytes=4 a"],
    "wc": ["-l a", "-cLlmw"],
    "cut": ["-d: -f1 a", "-b 1 -sz a", "-c1-3 --complement a"],
    "tr": ["-d x", "a-z A-Z", "-Ccds a", "/etc x"],
    "grep": ["x", "x a b", "-rn x .", "-A3 -B 2 -C1 -m 5 x a", "-e x a", "-ie x -e y a", "--include '*.py' -r x .",
             "--exclude=a --exclude-dir b x .", "--color=always x a", "-abcEFGHhiLlnoPqRrsvwxz x a", "/etc/passwd a"],
    "rg": ["x", "x src", "-n -A 3 x", "--files", "--files src", "-e x -e y src", "-g '!a' --glob '*.c' x",
           "--hidden --no-ignore --type py --max-count=3 --line-number --json x", "-cFHilnoqSsUuvwx x",
           "-T js -t py x"],
    "find": ["", ".", "a b -name '*.py' -type f", ". -maxdepth 2 -mindepth 1 -empty -o -prune -print0", ". -mtime -1",
             ". -iname x -path y -ipath z -size +5k -mmin -3 -perm -644 -user me -group us -a -not -print",
             ". -newer a", ". -name -delete"],
    "sed": ["-n 5p", "-n 1,20p a"],
    "sort": ["-bCcdfghiMmnRruVz a", "-k2 -t , a b", "-k 2,3n a"],
    "uniq": ["-cDdiuz a", "-f 1 -s2 -w3", "-c"],
    "stat": ["-c %s a", "-fLt a", "--format=%n a", "--format %n a"],
    "file": ["-bi a", "--mime-type a"],
    "du": ["-achkmsx a", "-d 1", "--max-depth=1 a", "-sh ."],
    "df": ["-hikT", "-h ."],
    "basename": ["a/b", "-a a b", "-s .c a.c", "-z a"],
    "dirname": ["-z a/b"],
    "realpath": ["-emqsz a"],
    "readlink": ["-efmnqz a"],
    "md5sum": ["-btz a"], "sha1sum": ["a"], "sha256sum": ["-b a b"], "sha512sum": ["a"], "cksum": ["a"],
    "cmp": ["-bls a b"],
    "comm": ["-123 a b", "-12 a b"],
    "diff": ["-abBcdiNqrstuwy a b", "-U3 a b", "-U 3 a b"],
    "echo": ["-neE hi", "hi", "-- -x", "/etc/passwd", ""],
    "printf": ["'%s\\n' a b", "hi", "'%5.2s|%%' x", "'%d\\n' 3", "%x 255"],
    "date": ["", "-u", "+%F", "-u +%s"],
    "pwd": ["", "-L", "-P"],
    "true": [""], "false": [""], "whoami": [""],
    "id": ["-Gn", "-u root"],
    "uname": ["-a", "-mnrsv"],
    "which": ["-a ls", "ls cat"],
    "seq": ["5", "-w 1 5", "-s , 1 3", "-f %g 3"],
    "expr": ["1 + 2", "1 - 2"],
    "awk": ["'{print $1}' a", "-F: '{ print $1, $NF }' a b", "-F , '{print}'", "'NR==5{print}' a",
            "'NR<=3 {print $2;}'"],
    "test": ["-f a", "-d src", "-e src/x"],
    "tree": ["", "-L 2 src", "-aI node_modules --dirsfirst", "-P '*.py' --noreport ."],
    "od": ["-c a", "-An -t x1 -N 16 a"], "fold": ["-sw 80 a"], "column": ["-t a", "-ts , a"],
    "nproc": [""], "arch": [""],
    "python": ["--version"], "python3": ["--version"], "node": ["--version"], "make": ["--version"],
}  # fmt: skip

REFUSED = {
    "ls": ["-I x", "--colour", "--color=x", "--hyperlink", "--col", "--all=x", "-w 3", "-Z", "/etc", "../x"],
    "cat": ["-x", "--show-all", "/etc/shadow", ".env", "''", "'~/x'", "out/passwd"],
    "rev": ["-x", "/etc/x"],
    "nl": ["-b", "-d x", "--body-numbering=a"],
    "paste": ["--delimiters=,", "-d"],
    "head": ["-n", "-5x", "--lines", "--line=3", "--zero-terminated", "-z a", "-c"],
    "tail": ["-f a", "-F a", "-5f a", "--follow a", "--pid=1 a", "-s 1 a", "-qf a"],
    "wc": ["--files0-from=a", "--lines", "-x"],
    "cut": ["--output-delimiter=x", "-n", "-d"],
    "tr": ["-x", "--delete x"],
    "grep": ["", "-f pats x", "--file=p x", "-d skip x", "--colour x", "-r x /etc", "-e", "--inc=x y",
             "--color=x y a"],
    "rg": ["", "-z x", "--search-zip x", "--pre cat x", "--pre=cat x", "-f p", "--hostname-bin=x y", "-r x y",
           "--files /etc", "--type-add x:y z", "-p x", "--glob", "x /etc", "-uz x"],
    "find": [". -delete", ". -exec rm x", ". -execdir x", ". -ok x", ". -fprint f", ". -fprintf f x", ". -fls f",
             ". -fprint0 f", ". -name", ". -printf x", ". -ls", ". -name x y", "-L .", ". -newer /etc/x", "/ -name x",
             ". -files0-from x", ". '!' -name x", "-- a", ". -regex x", ". -newerXY x", ". -okdir x", ". -quit"],
    "sed": ["", "-n", "-n 5p a b", "-i 5p a", "-n 5d a", "5p a", "-n -e 5p", "-n 5p -i", "-n 5p -s", "-n '5p;w x'",
            "-ni 5p", "-n 1,5p /etc/x", "-n '1,$p' a", "-n --in-place 5p", "-n 5p -- a"],
    "sort": ["-o v a", "-ov a", "--output=v a", "--compress-program=x a", "-T d a", "-S 1 a", "--files0-from=x",
             "-uo v",
             "--parallel=2 a"],
    "uniq": ["in out", "--count a", "-c in out", "-x", "- out"],
    "stat": ["--printf=x a", "--format", "-c", "-x a"],
    "file": ["-f a", "-C", "-m x a", "-z a", "--mime a", "-s a"],
    "du": ["--files0-from=x", "-X f", "--exclude=x", "-d", "/usr"],
    "df": ["-x t", "--sync", "/usr"],
    "basename": ["--suffix=x a", "/etc/x"],
    "dirname": ["-x"],
    "realpath": ["--relative-to=/ a", "-L a"],
    "readlink": ["--x a", "/proc/self/exe"],
    "md5sum": ["-c sums", "--check sums"], "sha1sum": ["-c a"], "sha256sum": ["-w a"], "sha512sum": ["--tag a"],
    "cksum": ["-a md5 a"],
    "cmp": ["-i 3 a b", "--x", "a /etc/x"],
    "comm": ["-4 a b", "--total a b"],
    "diff": ["--to-file=x a", "-x p a b", "-I re a b", "-U", "--color a b", "-D x a b", "-F x a b"],
    "echo": ["-x", "-nx", "--help"],
    "printf": ["", "-v PATH x", "-- x", "%n PATH", "'%*d' 3 4", "'%(%F)T'", "%d 'a[$(id)]'", "%d PATH=1", "%d x++",
               "'%5n' PATH", "'%ln' PATH"],
    "date": ["-s x", "01010101", "-f x", "-r x", "+a +b", "--set=x", "-d x"],
    "pwd": ["-W"],
    "true": ["-x"], "false": ["--x"], "whoami": ["-x"],
    "id": ["-Z", "-x"],
    "uname": ["-p", "--all"],
    "which": ["-s x"],
    "seq": ["-f", "-1 3", "--format=%g 3"],
    "expr": ["-1 + 2"],
    "awk": ["", "'{print > \"x\"}' a", "'{print $1 | \"sh\"}' a", "'BEGIN{system(\"id\")}'", "'{print $1}' .env",
            "-f p a",
            "'{print $1}' /etc/passwd", "-v x=1 '{print $x}' a", "'{print $1}' FS=x", "'{print $1}' -f p",
            "-F '{print}'",
            "'{getline < \"/etc/passwd\"; print}' a", "'{print $1}{print $2}' a", "-e '{print}' a",
            "'{print ENVIRON[1]}'",
            "'@load \"filefuncs\"' a", "-i inplace '{print $1}' a", "'{print $(system(1))}' a"],
    "test": ["", "-f", "a", "-v 'a[$(id)]'", "-f a -o -f b", "1 -eq 'a[$(id)]'", "-t 0", "-f /etc/passwd", "-f .env",
             "-R x", "-f -x"],
    "tree": ["-o x", "-R -H . -L 1", "--fromfile a", "-l", "/etc", "--infofile=x", "-aox"],
    "od": ["-S 3 a", "--traditional a", "/etc/x"], "fold": ["--width=3 a", "/etc/x"], "column": ["-J a", "/etc/x"],
    "nproc": ["--all", "x"], "arch": ["x"],
    "python": ["", "-c x", "--version x", "-V -c x"], "python3": ["", "x.py", "-m x", "--version -c x"],
    "node": ["", "-e x", "--version -e x", "-v"], "make": ["", "x", "--version SHELL=x", "-f x --version"],
}  # fmt: skip


@table(("name", "arguments"), [(n, a) for n, rows in ALLOWED.items() for a in rows])
def test_table_allows(name: str, arguments: str, world: CommandWorld) -> None:
    found = proof(f"{name} {arguments}", world)
    assert found.proven, found.why


@table(("name", "arguments"), [(n, a) for n, rows in REFUSED.items() for a in rows])
def test_table_refuses(name: str, arguments: str, world: CommandWorld) -> None:
    found = proof(f"{name} {arguments}", world)
    assert not found.proven
    assert found.why


def test_every_row_is_tested() -> None:
    assert set(ALLOWED) == set(REFUSED) == set(READ_ONLY_TABLE) - {"tac"}


@table(
    ("text", "why"),
    [
        ("tac a", "not the system's"),  # a toolchain comes before the system
        ("./ls", "not the system's"),
        ("bin/ls", "not the system's"),
        ("/workspace/ls", "not the system's"),
        ("/opt/x/ls", "not the system's"),
        ("/workspace/bin/rg x", "not the system's"),
        ("zsh -c ls", "the shell 'zsh'"),  # the same for the shell around it
        ("nosuch", "not known to only read"),
    ],
)
def test_programs_must_be_the_systems(text: str, why: str, world: CommandWorld) -> None:
    found = proof(text, world)
    assert not found.proven
    assert why in found.why


def test_program_missing_on_path(world: CommandWorld) -> None:
    class Empty:
        def program(self, name: str) -> ProgramFile | None:
            return None

        operand = world.operand

    assert proof("ls", Empty()).why == "'ls' was not found"


def test_one_unproven_segment_is_enough(world: CommandWorld) -> None:
    found = proof("ls && git stash; cat a", world)
    assert [part.proven for part in found.segments] == [True, False, True]
    assert not found.proven
    assert "git" in found.why


class TestCd:
    def test_later_operands_resolve_from_there(self, world: CommandWorld) -> None:
        found = proof("cd src && cat ../a b", world)
        assert found.proven
        assert [operand.virtual for operand in found.reads] == [
            "/workspace/src", "/workspace/a", "/workspace/src/b"
        ]  # fmt: skip

    def test_climbing_out_from_there_is_outside(self, world: CommandWorld) -> None:
        assert [operand.virtual for operand in proof("cd src && cat ../../etc/x", world).outside] == ["/etc/x"]

    def test_after_a_semicolon_both_directories_count(self, world: CommandWorld) -> None:
        found = proof("cd src && ls; cat ../a", world)
        assert not found.proven
        assert [operand.virtual for operand in found.outside] == ["/a"]
        assert proof("cd src && ls; cat a", world).proven

    @table(
        "text",
        ["cd src", "cd src; ls", "cd src || ls", "cd src | ls", "ls && cd src && ls", "cd && ls", "cd - && ls",
         "cd a b && ls", "cd -P src && ls", "cd +1 && ls", "cd /etc && ls", "cd '' && ls", "cd out && ls"],
    )  # fmt: skip
    def test_only_first_and_joined_by_and(self, text: str, world: CommandWorld) -> None:
        assert not proof(text, world).proven


def test_links_are_followed_before_dotdot(world: CommandWorld) -> None:
    # link → /workspace/deep/down, so link/../x is /workspace/deep/x to the kernel
    assert [operand.virtual for operand in proof("cat link/../x", world).reads] == ["/workspace/deep/x"]
    assert [operand.virtual for operand in proof("cd link && cat ../x", world).reads] == [
        "/workspace/deep/down", "/workspace/deep/x"
    ]  # fmt: skip
    assert not proof("cat out/../x", world).proven
    assert not proof("cat " + "a/../" * 500 + "x", world).proven


@table(
    ("text", "reads"),
    [
        ("ls", ["/workspace"]),
        ("rg x", ["/workspace"]),
        ("grep -r x", ["/workspace"]),
        ("grep x", []),
        ("find -name x", ["/workspace"]),
        ("cat -", []),
        ("cat a /scratch/b a", ["/workspace/a", "/scratch/b"]),
        ("echo a", []),
    ],
)
def test_reads(text: str, reads: list[str], world: CommandWorld) -> None:
    found = proof(text, world)
    assert found.proven
    assert [operand.virtual for operand in found.reads] == reads


@table(
    "text", ["cat .env", "cat src/../.env", "grep x .env", "find . -name .env", "rg -g .env x",
    "cat /workspace/.ssh/x",
             "find . -name '.e*'", "ls -- k.pem", "rg --glob=.env x", "cd .ssh && ls"],
)  # fmt: skip
def test_secret_operands_are_not_proven_but_reported(text: str, world: CommandWorld) -> None:
    assert not proof(text, world).proven


def test_secret_read_is_reported(world: CommandWorld) -> None:
    assert [(operand.virtual, operand.secret) for operand in proof("cat .env", world).reads] == [
        ("/workspace/.env", True)
    ]
    assert proof("echo .env", world).proven
    assert proof("grep .env a", world).proven


@table("text", ["grep -r x deep", "grep -nR x deep", "rg x deep", "diff -r deep src", "diff src deep"])
def test_content_below_a_directory_is_proven_only_if_all_of_it_was_seen(text: str, world: CommandWorld) -> None:
    found = proof(text, world)
    assert "did not search everything below '/workspace/deep'" in found.why
    assert proof(text.replace("deep", "src"), world).proven


@table("text", ["ls -R deep", "find deep -name x", "du deep", "grep x deep", "cd deep && ls"])
def test_names_below_a_directory_are_not_content(text: str, world: CommandWorld) -> None:
    assert proof(text, world).proven


@table(
    ("text", "all_of_it"),
    [("rg u", False), ("rg -n u", False), ("rg -u x", True), ("rg -nuu x", True), ("rg --hidden x", True)],
)
def test_rg_is_proven_beside_hidden_files_that_nobody_looked_into_unless_it_reads_them(
    text: str, all_of_it: bool, world: CommandWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(world), "scan_complete", lambda self, virtual, *, hidden=True: not hidden)
    assert proof(text, world).proven is not all_of_it


@table(
    "text",
    [
        "tree -Lo 2 a.txt src",  # the program takes `a.txt` for the file of `-o`
        "tree -L2 src",
        "tail +1f a.txt",
        "tail -n 1 +1f a.txt",
        "od +10 a.txt",
    ],
)
def test_an_option_is_read_as_the_program_reads_it(text: str, world: CommandWorld) -> None:
    assert not proof(text, world).proven


def test_a_value_that_must_be_glued_is_not_the_next_word(world: CommandWorld) -> None:
    outside = [operand.virtual for operand in proof("od -c -w /etc/passwd", world).outside]
    assert outside == ["/etc/passwd"]
    assert proof("od -c -w8 a.txt", world).proven and proof("od -w a.txt", world).proven
