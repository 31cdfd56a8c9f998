"""How often a person is asked: an ordinary day's commands and edits, taken down the one path of a real session.

`python -m benchmarks.questions` needs nothing but Forge, prints what asked and why, and writes build/questions.json;
as a topic of `python -m benchmarks` it gives the rows alone. With `--before FILE`, a questions.json that an older
version wrote, both stand side by side. `python -m benchmarks.agentdojo` counts AgentDojo's calls for the same people.

Four people answer. *Nothing remembered* says yes each time. *First choice* takes the first choice on the card that
keeps within the bound. *Widest choice* takes the widest one within it. The bound: for this session or this project;
this program and subcommand, this directory, this host, this exact call; never "any command inside the walls", never
every call of a tool. Nobody is asked to approve what is critical more broadly than word for word. *Contained* is in the
approval mode of that name and keeps nothing: what asks there is listed, each with its reason.

The commands are an ordinary day's, and fifty with the shell's own syntax: patterns, loops, heredocs, redirections,
substitutions, functions. They really run, inside walls, in a repository made for the purpose. Most fail there: nothing
is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Pace
from benchmarks.rows import Row, below, row
from golem_forge import ApprovalRequest
from golem_forge.agent.session import open_session
from golem_forge.storage.home import ForgeHome

ROOT: Final = Path(__file__).resolve().parents[1]
REPORT: Final = ROOT / "build" / "questions.json"

PEOPLE: Final = ("nothing remembered", "first choice", "widest choice", "contained")
PATIENCE_MS: Final = 300
"""A command that wants the network tries for a minute; nobody waits for it here."""
TOO_WIDE: Final = ("grant", "tool", "domain")
"""Choices that are beyond the bound, by the first part of their ids."""

# In the order of a day: look around, mend something, test, commit, publish, write docs, clean up; with repeats.
DAY: Final = """
git status
git log --oneline -10
ls -la
cat README.md
git checkout -b fix/parser
grep -rn parse src
sed -n 1,60p src/app/parser.py
awk '{print $1}' data.txt
pytest -q
pytest -q tests/test_parser.py
sed -i s/colour/color/ src/app/parser.py
git diff
pytest -q tests/test_parser.py
pytest -x --lf
ruff check .
ruff check --fix src
ruff format src tests
mypy src
git add -A
git commit -m 'Mend the parser'
git status -s
git push -u origin fix/parser
python3 --version
pip install requests
pip list
python3 -c 'import sys; print(sys.path)'
python3 scripts/gen.py --out build
mkdir -p build/out
mv src/app/old.py src/app/legacy.py
rm -rf build
pytest -q tests/test_cli.py -k verbose
pytest -q --maxfail=1
git add src/app/cli.py tests/test_cli.py
git commit -m 'A verbose mode'
git diff HEAD --stat
make test
make lint
make test
make build
find . -name '*.py' -newer README.md
wc -l src/app/parser.py src/app/cli.py
head -50 src/app/cli.py
tail -20 CHANGELOG.md
npm test
npm run lint
npm run build
npm install left-pad
npm test -- src/app.test.js
npx tsc --noEmit
npx eslint src
npm run lint
npm run build
node --version
git add web
git commit -m 'The page has a title'
curl -s https://docs.python.org/3/library/json.html
docker ps
docker compose ps -a
docker logs web --tail 50
go test ./...
go vet ./...
go build ./...
go test ./internal/store -run TestOpen -v
gofmt -l .
go mod tidy
git stash
git checkout main
git pull
git checkout -b docs/usage
git stash pop
test -f docs/usage.md
cat docs/usage.md
grep -n Usage README.md | head -5
git reflog -5
git merge-base main HEAD
du -sh src
tree -L 2 src
jq .version package.json
diff README.md docs/usage.md
pytest tests -q --durations=5
python3 -m pytest -q tests
python3 -m pytest -q tests/test_cli.py
ruff check src/app
ruff format --check .
mypy src --strict
git add docs/usage.md
git commit -m 'How to use it' -m 'With examples'
git commit --amend --no-edit
git push
cd src && ls
cd web && npm test
which python3
echo done
env | sort
rm build/report.txt
touch build/.keep
cp README.md docs/index.md
git branch -a
git add -u && git commit -m 'Tidy up'
git push
"""

# As models write them: patterns, loops, heredocs, redirections, substitutions, functions, here-strings. One a line;
# a newline in a command is written \n.
SHELL: Final = r"""
ls *.md
ls src/**/*.py | head
wc -l src/app/*.py
cat src/app/{cli,text}.py
rm -f build/*.txt
cp docs/*.md build/
echo 'next: tests' >> notes.txt
echo '*.pyc' > .gitignore.new
pytest -q > build/test.log 2>&1
python3 scripts/gen.py 2> build/errors.txt
make test 2>&1 | tee build/make.log
grep -rn TODO src > build/todo.txt || true
sort < data.txt > build/sorted.txt
FOO=1 make test
PYTHONPATH=src python3 -c 'import app'
CI=true npm test
for f in src/app/*.py; do wc -l "$f"; done
for i in 1 2 3; do echo "$i" >> build/numbers.txt; done
for d in src tests docs; do [ -d "$d" ] && echo "$d"; done
while read -r line; do echo "$line"; done < data.txt
until [ -f build/done ]; do touch build/done; done
if [ -f Makefile ]; then make build; else echo none; fi
[ -d build ] || mkdir build
test -f package.json && node -e 'console.log(1)'
case "$(uname)" in Linux) echo linux;; *) echo other;; esac
cat > docs/new.md <<'EOF'\n# New\nRun pip install app, then git push.\nEOF
cat <<EOF > build/config.ini\n[app]\nname = $USER\nEOF
python3 - <<'EOF'\nimport json\nprint(json.dumps({'a': 1}))\nEOF
bash <<'EOF'\nset -e\nmake lint\nEOF
tr a-z A-Z <<< hello
grep -c x <<< "$(cat data.txt)"
echo "$(git rev-parse --short HEAD)"
VERSION=$(cat VERSION 2>/dev/null || echo 0.1); echo "$VERSION"
echo `date +%s` > build/stamp
git log --oneline | head -n $((2 + 3))
files=$(git ls-files '*.py'); echo "$files" | wc -l
greet() { echo "hello $1"; }; greet you
check() { ruff check "$@"; }; check src tests
diff <(sort data.txt) <(sort README.md)
comm -12 <(sort data.txt) <(sort README.md) > build/common.txt
(cd web && npm test)
(cd docs; ls *.md)
{ echo one; echo two; } > build/two.txt
set -e; git fetch origin && git log --oneline HEAD..origin/main
export NODE_ENV=test; for p in left-pad chalk; do npm install "$p"; done
trap 'rm -f build/tmp' EXIT; touch build/tmp
find . -name '*.pyc' -exec rm -f {} +
find src -name '*.py' | xargs sed -i 's/colour/color/g'
git diff --name-only | while read -r f; do ruff format "$f"; done
sleep 0.1 & wait; echo "status $?"
"""
EDITS: Final = (
    *("src/app/parser.py", "src/app/cli.py", "src/app/parser.py", "src/app/text.py", "tests/test_parser.py"),
    *("tests/test_cli.py", "tests/test_parser.py", "src/app/store.py", "src/app/store.py", "docs/usage.md"),
    *("docs/index.md", "docs/install.md", "web/app.js", "web/app.css", "web/app.js", "README.md", "CHANGELOG.md"),
    *("src/app/cli.py", "tests/test_store.py", "package.json"),
)
"""The files of twenty calls of write_file."""


@dataclass(frozen=True, slots=True)
class Question:
    what: str
    kind: str
    why: str
    risk: str
    choices: tuple[str, ...]
    taken: str


@dataclass(slots=True)
class Person:
    name: str
    questions: list[Question] = field(default_factory=list)
    now: str = ""

    def answer(self, request: ApprovalRequest) -> dict[str, Any]:
        shown = sorted(request.choices, key=lambda each: not getattr(each, "suggested", False))  # as a card shows them
        choice = pick(self.name, [(each.id, each.scope) for each in shown])
        labels = tuple(f"{each.id} {each.label}" for each in shown)
        why = request.why if self.name == PEOPLE[3] else "; ".join(request.risk_reasons) or request.why
        self.questions.append(Question(self.now, kind_of(self.now), why, request.risk, labels, choice))
        return {"approved": True, **({"choice": choice} if choice else {})}


def pick(person: str, offered: Sequence[tuple[str, str]]) -> str:
    """The id of the choice that this person takes; empty: yes, this once."""
    within = [id_ for id_, _ in offered if id_.partition(":")[0] not in TOO_WIDE]
    if person in (PEOPLE[0], PEOPLE[3]) or not within:
        return ""
    if person == PEOPLE[1]:
        return within[0]
    rules = [id_ for id_ in within if not id_.startswith(("exact", "file:"))]
    wide = [id_ for id_ in rules if id_.startswith("directory")] or rules or within
    return wide[-1]


def mode_of(person: str) -> str:
    return "contained" if person == PEOPLE[3] else "interactive"


def kind_of(what: str) -> str:
    words = what.split()
    while words[0] == "cd" and len(words) > 3:
        words = words[3:]
    has_subcommand = words[0] in ("git", "npm", "docker", "go", "make", "pip", "ruff")
    return " ".join(words[:2]) if has_subcommand else " ".join(words[: 3 if words[1:2] == ["-m"] else 1])


async def count(person: str) -> dict[str, list[Question]]:
    """What one person is asked on the day, and for the edits of another."""
    found = {}
    for name, calls in (("commands", _commands(DAY)), ("edits", _edits()), ("shell-like commands", _commands(SHELL))):
        with tempfile.TemporaryDirectory(prefix="bench-questions-") as folder:
            project = make_repository(Path(folder) / "project")
            asked = Person(person)
            async with open_session(
                project, home=ForgeHome(Path(folder) / "home"), approval=mode_of(person), approval_callback=asked.answer
            ) as session:
                for tool, arguments, asked.now in calls:
                    await session.call(tool, arguments)
            found[name] = asked.questions
    return found


def _commands(listed: str) -> Iterable[tuple[str, dict[str, Any], str]]:
    for line in listed.strip().splitlines():
        network = {"network": ["docs.python.org:443"]} if "docs.python.org" in line else {}
        yield "exec_command", {"cmd": line.replace(r"\n", "\n"), "yield_time_ms": PATIENCE_MS, **network}, line


def _edits() -> Iterable[tuple[str, dict[str, Any], str]]:
    for number, path in enumerate(EDITS):
        yield "write_file", {"path": f"/workspace/{path}", "content": f"{number}\n"}, f"write_file {path}"


def make_repository(folder: Path) -> Path:
    for path in (*EDITS, "src/app/old.py", "scripts/gen.py", "data.txt", "Makefile", "build/report.txt"):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}\n" if path.endswith(".json") else "# nothing\n")
    (folder / "Makefile").write_text("test lint build:\n\t@true\n")
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-C", str(folder))
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Start")):
        subprocess.run((*git, *words), check=True, capture_output=True)
    return folder


async def rows(pace: Pace) -> list[Row]:
    del pace  # a count is a count
    found = [
        row(_title(name, person), len(each)) for person in PEOPLE[:3] for name, each in (await count(person)).items()
    ]
    return [*found, *await contained_rows()]


async def contained_rows() -> list[Row]:
    """Of the person in the mode `contained`; part of the topic `undo`, too."""
    counted = await count(PEOPLE[3])
    return [row(_title(name, PEOPLE[3]), len(each), goal=below(_MOST[name] + 1)) for name, each in counted.items()]


def _title(name: str, person: str) -> str:
    return f"questions, {_AMOUNTS[name]} {name}, {person}"


_AMOUNTS: Final = {
    "commands": len(DAY.strip().splitlines()),
    "edits": len(EDITS),
    "shell-like commands": len(SHELL.strip().splitlines()),
}
_MOST: Final = {"commands": 12, "edits": 0, "shell-like commands": 3}
"""Questions in the mode `contained`."""


def report(counted: dict[str, dict[str, list[Question]]]) -> dict[str, Any]:
    return {
        "of": _AMOUNTS,
        "questions": {person: {name: len(each) for name, each in parts.items()} for person, parts in counted.items()},
        "by_kind": {
            person: dict(Counter(question.kind for each in parts.values() for question in each).most_common())
            for person, parts in counted.items()
        },
        "asked": {
            person: [
                {"what": each.what, "risk": each.risk, "why": each.why, "choices": each.choices, "taken": each.taken}
                for part in parts.values()
                for each in part
            ]
            for person, parts in counted.items()
        },
    }


def table(now: dict[str, Any], before: dict[str, Any] | None) -> str:
    lines = [f"{'':<42}{'before':>8}{'now':>6}"]

    def line(name: str, old: int | None, new: int) -> None:
        lines.append(f"{name:<42}{'' if old is None else old:>8}{new:>6}")

    for person, parts in now["questions"].items():
        for name, number in parts.items():
            old = before["questions"].get(person, {}).get(name) if before else None
            line(f"{now['of'][name]} {name}, {person}", old, number)
    first = PEOPLE[1]
    old_kinds = before["by_kind"][first] if before else {}
    kinds = now["by_kind"][first]
    lines += ["", f"by kind, {first}"]
    for kind in dict.fromkeys((*kinds, *old_kinds)):
        line(f"  {kind}", old_kinds.get(kind, 0) if before else None, kinds.get(kind, 0))
    lines += ["", f"what asks, {PEOPLE[3]}"]
    lines += [f"  {each['what']}: {each['why']}" for each in now["asked"][PEOPLE[3]]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions", description="How often a person is asked.")
    parser.add_argument("--before", type=Path, metavar="FILE", help="questions.json of an older version, to compare")
    parser.add_argument("--out", type=Path, default=REPORT, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    before = json.loads(options.before.read_text()) if options.before else None
    now = report({person: asyncio.run(count(person)) for person in PEOPLE})
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n")
    print(table(now, before))
    print(f"\nwritten to {options.out.name}")


if __name__ == "__main__":
    main()
