"""What programs print when they are refused something, and what of it is evidence: of which access, at which path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.tables import table

from golem_forge.sandbox.walls.denials import find_denials
from golem_forge.sandbox.walls.model import PlannedZone, RefusalReason, Restriction, WallPlan

ZONE = PlannedZone(
    name="workspace",
    host="/srv/host/app",
    base="/srv/host/app",
    writable=True,
    restrictions=(
        Restriction(parts=(".git", "hooks"), why=RefusalReason.PROTECTED),
        Restriction(parts=(".git", "config"), why=RefusalReason.PROTECTED),
        Restriction(parts=(".env",), why=RefusalReason.SECRET, masked=True),
        Restriction(parts=("removed",), why=RefusalReason.SECRET, masked=True),
        Restriction(parts=("notes",), why=RefusalReason.RULE),
        Restriction(parts=("agent.sock",), why=RefusalReason.SEALED, masked=True),
    ),
)
DOCS = PlannedZone(name="docs", host="/srv/docs", base="/srv/docs", writable=False)
FULL = WallPlan(
    zones=(ZONE, DOCS), cwd="/srv/host/app", private=("/tmp",), readable=("/usr", "/bin", "/etc"), mounted=True
)
IN_DOCS = replace(FULL, cwd="/srv/docs")
LANDLOCK = replace(FULL, zones=(replace(ZONE, writable=False), DOCS), mounted=False)
"""There a missing right is the answer to every write, and every zone is read-only."""

READ = "read /workspace/.env"
WRITE = "write /workspace/.git/config"
DELETE = "delete /workspace/.git/config"


def facts(text: str, plan: WallPlan, **ending: Any) -> str:
    return ", ".join(
        f"{one['access']} {one['target']}" for one in find_denials(plan, f"{text}\n", **{"exit_code": 1, **ending})
    )


PRINTED_IN_FULL_WALLS = {
    # Python
    "PermissionError: [Errno 13] Permission denied: '.env'": READ,
    "OSError: [Errno 30] Read-only file system: '.git/config'": WRITE,
    "OSError: [Errno 16] Device or resource busy: '.git/config'": WRITE,
    "OSError: [Errno 30] Read-only file system: '/usr/x'": "write /usr/x",
    "OSError: [Errno 30] Read-only file system: 'a' -> '/docs/b'": "write /docs/b",
    "python3: can't open file '/srv/host/app/.env': [Errno 13] Permission denied": READ,
    "ERROR: Could not install packages due to an OSError: [Errno 30] Read-only file system: '/docs/v'": "write /docs/v",
    "PermissionError: [Errno 13] Permission denied": "",
    "OSError: [Errno 30] Read-only file system": "",
    "PermissionError: [Errno 1] Operation not permitted: '.git/config'": "",
    "PermissionError: [Errno 13] Permission denied: '/usr/bin/bash'": "",
    # Node and npm
    "Error: EACCES: permission denied, open '.env'": READ,
    "Error: EACCES: permission denied, scandir '/workspace/removed'": "read /workspace/removed",
    "Error: EROFS: read-only file system, open '.git/config'": WRITE,
    "Error: EBUSY: resource busy or locked, unlink '.git/config'": DELETE,
    "Error: EROFS: read-only file system, mkdir '/usr/n'": "write /usr/n",
    "Error: EROFS: read-only file system, copyfile 'a' -> '/docs/b'": "write /docs/b",
    "Error: listen EROFS: read-only file system /docs/s.sock": "write /docs/s.sock",
    "Error: listen EACCES: permission denied 0.0.0.0:80": "",
    "Error: spawnSync ./run.sh EACCES": "",
    "Error: connect EACCES /srv/host/app/agent.sock": "read /workspace/agent.sock",
    "npm error code EROFS": "",
    "npm error errno EROFS": "",
    "npm error EROFS: read-only file system, mkdir '/usr/lib/node_modules/x'": "write /usr/lib/node_modules/x",
    "  code: 'EROFS',": "",
    # Go
    "open .env: permission denied": READ,
    "2031/01/01 10:00:00 open .git/config: read-only file system": WRITE,
    "mkdir /docs/x: read-only file system": "write /docs/x",
    "unlinkat .git/config: device or resource busy": DELETE,
    "fork/exec ./run.sh: permission denied": "",
    "fork/exec /usr/bin/bash: permission denied": "",
    'exec: "/workspace/.env": permission denied': READ,
    "dial unix /workspace/agent.sock: connect: permission denied": "read /workspace/agent.sock",
    "dial tcp 1.1.1.1:443: connect: permission denied": "",
    # Rust
    'Error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }': "",
    'called `Result::unwrap()` on an `Err` value: Os { code: 30, message: "Read-only file system" }': "",
    "rg: ./.env: Permission denied (os error 13)": READ,
    "error: failed to create directory `/docs/c`\n\nCaused by:\n  Read-only file system (os error 30)": "write /docs/c",
    "error: failed to read `.env`\n\nCaused by:\n  Permission denied (os error 13)": READ,
    "error: cannot\n\nCaused by:\n  0: failed to open `.git/config`\n  1: Read-only file system (os error 30)": WRITE,
    # Java
    'Exception in thread "main" java.nio.file.AccessDeniedException: .env': READ,
    "java.io.FileNotFoundException: .env (Permission denied)": READ,
    "java.nio.file.FileSystemException: .git/config: Read-only file system": WRITE,
    # Ruby, PHP, Perl, Tcl
    "a.rb:1:in `initialize': Permission denied @ rb_sysopen - .env (Errno::EACCES)": READ,
    "a.rb:1:in `open': Read-only file system @ rb_sysopen - .git/config (Errno::EROFS)": WRITE,
    "a.rb:1:in `unlink': Device or resource busy @ apply2files - .git/config (Errno::EBUSY)": DELETE,
    "a.rb:1:in 'rename': Read-only file system @ rb_file_s_rename - (a, /docs/b) (Errno::EROFS)": "write /docs/b",
    "PHP Warning:  file_put_contents(.git/config): Failed to open stream: Read-only file system": WRITE,
    "PHP Warning:  file_get_contents(.env): Failed to open stream: Permission denied in /srv/x.php on line 3": READ,
    "cannot open .env: Permission denied at -e line 1.": READ,
    'Can\'t open perl script ".env": Permission denied': READ,
    "Read-only file system at -e line 1.": "",
    "Can't write: Read-only file system at -e line 1.": "",
    'couldn\'t read file ".env": permission denied': READ,
    # shells
    "bash: line 1: .env: Permission denied": READ,
    "bash: line 1: .git/config: Read-only file system": WRITE,
    "bash: line 1: .git/config: Permission denied": "",
    "/usr/bin/bash: line 1: ./run.sh: Permission denied": "",
    "/usr/bin/bash: line 1: .git/config: Read-only file system": WRITE,
    "bash: line 1: /usr/bin/bash: Permission denied": "",
    "bash: line 1: exec: /usr/bin/x: cannot execute: Permission denied": "",
    "bash: ./x: /bin/nope: bad interpreter: Permission denied": "",
    "bash: line 1: ulimit: open files: cannot modify limit: Operation not permitted": "",
    "bash: line 1: kill: (1) - Operation not permitted": "",
    "dash: 1: cannot create .git/config: Read-only file system": WRITE,
    "dash: 1: .: cannot open ./.env: Permission denied": READ,
    "zsh:1: permission denied: .env": READ,
    "zsh: read-only file system: .git/config": WRITE,
    "zsh: permission denied: ./run.sh": "",
    "fish: An error occurred while redirecting file '.git/config'\nopen: Read-only file system": WRITE,
    # coreutils and friends
    "cat: /workspace/removed/created.lock: Permission denied": "read /workspace/removed/created.lock",
    "head: cannot open '.env' for reading: Permission denied": READ,
    "cp: cannot open '.env' for reading: Permission denied": READ,
    "sort: cannot read: .env: Permission denied": READ,
    "sed: can't read .env: Permission denied": READ,
    "awk: cannot open .env (Permission denied)": READ,
    "gawk: fatal: cannot open file `.env' for reading: Permission denied": READ,
    "dd: failed to open '.env': Permission denied": READ,
    "tee: notes: Read-only file system": "write /workspace/notes",
    "shred: .git/config: failed to open for writing: Read-only file system": WRITE,
    "truncate: cannot open '.git/config' for writing: Read-only file system": WRITE,
    "mv: cannot move 'a' to './.git/config': Read-only file system": WRITE,
    "mv: cannot move '.env' to 'y': Device or resource busy": "write /workspace/.env",
    "rm: cannot remove '.git/config': Device or resource busy": DELETE,
    "chmod: changing permissions of '/usr/bin/bash': Read-only file system": "write /usr/bin/bash",
    "env: ‘/usr/bin/bash’: Permission denied": "",
    "timeout: failed to run command ‘./run.sh’: Permission denied": "",
    "touch: cannot touch 'src/x': Read-only file system": "",
    "touch: cannot touch '.env': Permission denied": "write /workspace/.env",
    "cp: cannot create regular file '.git/config': Permission denied": "",  # its own mode: walls answer otherwise
    "chroot: cannot change root directory to '/': Operation not permitted": "",
    "renice: failed to set priority for 2 (process ID): Permission denied": "",
    "mount: /tmp: permission denied.": "",
    "cat: /proc/self/root/workspace/.env: Permission denied": READ,
    "cat: /proc/self/cwd/.env: Permission denied": READ,
    # git, make, compilers, tar, rsync, curl
    "error: could not lock config file .git/config: Read-only file system": WRITE,
    "fatal: Unable to create '/workspace/.git/config': Read-only file system": WRITE,
    'error: open(".env"): Permission denied': READ,
    "warning: unable to access '.env': Permission denied": READ,
    "/docs/.git: Read-only file system": "write /docs/.git",
    "make: open: .env: Permission denied": READ,
    "mk2:1: .env: Permission denied": READ,
    "/usr/bin/ld: cannot open output file /docs/a: Read-only file system": "write /docs/a",
    "/usr/bin/ld: cannot open output file a.out: Permission denied": "",
    "cc1: fatal error: .env: Permission denied": READ,
    "tar: .env: Cannot open: Permission denied": READ,
    "tar: /docs/x.tar: Cannot open: Read-only file system": "write /docs/x.tar",
    'rsync: [sender] send_files failed to open "/workspace/.env": Permission denied (13)': READ,
    'rsync: [receiver] mkstemp "/docs/.a.hJ3" failed: Read-only file system (30)': "write /docs/.a.hJ3",
    "Warning: Failed to open the file /docs/x: Read-only file system": "write /docs/x",
    # of nothing here
    "ssh: Permission denied (publickey).": "",
    "psql: FATAL: permission denied for table users": "",
    "docker: permission denied while trying to connect": "",
    "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted": "",
}


@table(("line", "expected"), PRINTED_IN_FULL_WALLS.items())
def test_lines_printed_in_full_walls(line: str, expected: str) -> None:
    assert facts(f"before\n{line}\nafter", FULL) == expected


@table(
    ("line", "expected"),
    {
        "OSError: [Errno 30] Read-only file system": "",
        "OSError: [Errno 30] Read-only file system: 'made'": "write /docs/made",
        "npm error code EROFS": "",
        "npm error path text/html EROFS": "",
        "touch: cannot touch 'a': Read-only file system": "write /docs/a",
        "tar: notes: Cannot open: Read-only file system": "write /docs/notes",
        "tar: notes: Cannot mkdir: Read-only file system": "write /docs/notes",
        "bash: line 1: made: Read-only file system": "write /docs/made",
        "zsh:1: read-only file system: made": "write /docs/made",
        "mkdir made: read-only file system": "write /docs/made",
        "touch: cannot touch '[id].tsx': Read-only file system": "write /docs/[id].tsx",
        "bash: line 1: app/[id]/page.tsx: Read-only file system": "write /docs/app/[id]/page.tsx",
        "cat: write error: Read-only file system": "",
        "fatal: write failed: Read-only file system": "",
        "called `Result::unwrap()` on an `Err` value: Read-only file system (os error 30)": "",
        "a.rb:1:in `open': Read-only file system @ rb_sysopen - made (Errno::EROFS)": "write /docs/made",
        "Can't write: Read-only file system at -e line 1.": "",
        "error: 5/7 and/or failed: Read-only file system": "",
        "cp: error writing 'made': Read-only file system": "write /docs/made",
    }.items(),
)
def test_where_every_word_could_be_a_path_only_a_name_is_one(line: str, expected: str) -> None:
    assert facts(line, IN_DOCS) == expected


@table(
    ("line", "expected"),
    {
        "PermissionError: [Errno 13] Permission denied": "",
        "PermissionError: [Errno 13] Permission denied: 'made'": "write /workspace/made",
        "bash: line 1: made: Permission denied": "write /workspace/made",
        "touch: cannot touch 'made': Permission denied": "write /workspace/made",
        "chmod: changing permissions of 'made': Operation not permitted": "write /workspace/made",
        "rm: cannot remove 'made': Permission denied": "delete /workspace/made",
        "cat: made: Permission denied": "",
        "python3: can't open file '/workspace/made.py': [Errno 13] Permission denied": "",
        "env: ‘./run.sh’: Permission denied": "",
        "make: ./run.sh: Permission denied": "",
        "cp: cannot open 'made' for reading: Permission denied": "",
        "bash: line 1: cd: made: Permission denied": "",
        "psql: FATAL: permission denied for table users": "",
        "PermissionError: [Errno 1] Operation not permitted": "",
        "date: cannot set date: Operation not permitted": "",
        "bash: line 1: ulimit: open files: cannot modify limit: Operation not permitted": "",
        "    self._execute_child(args, executable)\nPermissionError: [Errno 13] Permission denied: './run.sh'": "",
        "PermissionError: [Errno 13] Permission denied: '/usr/bin/bash'": "",
        "touch: cannot touch '/usr/x': Permission denied": "write /usr/x",
        "cat: /root/x: Permission denied": "read /root/x",
        "cat: .env: Permission denied": READ,
    }.items(),
)
def test_lines_printed_in_read_only_walls(line: str, expected: str) -> None:
    assert facts(line, LANDLOCK) == expected


def test_a_shell_that_could_not_execute_tried_no_write() -> None:
    line = "bash: line 1: ./run.sh: Permission denied"
    assert facts(line, LANDLOCK, exit_code=1) == "write /workspace/run.sh"
    assert facts(line, LANDLOCK, exit_code=126) == ""
    assert facts("sh: 1: ./run.sh: Permission denied", LANDLOCK, exit_code=126) == ""
