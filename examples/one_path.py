"""The one path in a minute: tools, an approval, a refusal, a command inside walls, and the journal that saw it all.

Run it with `python examples/one_path.py`. On a terminal you answer the approvals; without one it answers
itself and says so.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from golem_forge import Caller, Outcome, Session, open_session, tool
from golem_forge.events.journal_records import read, verify
from golem_forge.policy.request import ApprovalRequest
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.approval_prompt import ask_on_terminal, can_ask


@tool(needs_approval=False, read_only=True)
def word_count(text: Annotated[str, "the text to count"]) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(needs_approval=lambda args: args["target"] != "staging", label="Deploy")
async def deploy(target: Annotated[str, "where to"], version: str = "latest") -> str:
    """Deploy a version. Anything but staging asks first."""
    return f"deployed {version} to {target}"


@tool(needs_approval="blocked")
def drop_database(name: str) -> str:
    """Drop a database. No one may."""
    raise AssertionError("never reached")


PATCH = """*** Begin Patch
*** Update File: notes.txt
@@
 buy milk
-and bread
+and two breads
*** Add File: done/today.txt
+nothing yet
*** End Patch
"""


def answer(request: ApprovalRequest) -> dict[str, Any]:
    if can_ask():
        return ask_on_terminal(request)
    print(f"    (no terminal: this example answers yes to {request.tool}, risk {request.risk}, why: {request.why})")
    for line in request.diff.splitlines():
        print(f"    {line}")
    return {"approved": True}


async def show(session: Session, name: str, args: dict[str, Any]) -> Outcome:
    print(f"\n> {name} {args}")
    outcome = await session.call(name, args, caller=Caller.LLM)
    print(f"  {outcome.status.value}: {outcome.text}")
    return outcome


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        project, home = Path(folder, "project"), ForgeHome(Path(folder, "forge-home"))
        project.mkdir()
        (project / "notes.txt").write_text("buy milk\n")
        (project / ".git" / "hooks").mkdir(parents=True)
        (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        tools = [word_count, deploy, drop_database]
        async with open_session(project, tools=tools, approval_callback=answer, home=home) as session:
            print("A tool that says of itself that it is harmless runs at once; its arguments are checked:")
            await show(session, "word_count", {"text": "one path for every call"})
            await show(session, "word_count", {"txt": "a slip of the pen"})
            print("\nA tool decides by its arguments; production asks:")
            await show(session, "deploy", {"target": "staging"})
            await show(session, "deploy", {"target": "production"})
            print("\nBlocked means blocked, for everyone and in every mode:")
            refused = await show(session, "drop_database", {"name": "users"})
            print("\nNative file tools show what they would change before they do it:")
            await show(session, "write_file", {"path": "notes.txt", "content": "buy milk\nand bread\n"})
            await show(session, "read_file", {"path": "/etc/passwd"})
            print("\nA patch is planned whole before anybody is asked, and applied whole or not at all:")
            await show(session, "apply_patch", {"input": PATCH})
            print("\nCommands run inside walls: this project, read-only system directories, no network, no secrets:")
            await show(session, "exec_command", {"cmd": "wc -l notes.txt && ls"})
            await show(
                session, "exec_command", {"cmd": "cat ~/.ssh/id_rsa /root/.bashrc; touch /usr/bin/x; env | wc -l"}
            )
            await show(session, "exec_command", {"cmd": "echo 'evil' > .git/hooks/pre-commit"})
            journal = session.journal
        assert journal is not None
        _print_journal(journal.path)
        intact = verify(journal.path)
        print(f"\njournal: {intact.lines} lines, {'hash chain intact' if intact.ok else 'TAMPERED'}")
    return 0 if intact.ok and refused.status == "policy_denied" else 1


def _print_journal(path: Path) -> None:
    print("\nEvery step was written down before it had an effect:")
    for record in read(path):
        if record["type"] in ("proposed", "decided", "started", "begun", "finished"):
            about = record.get("tool") or record.get("status") or record.get("decision", {}).get("verdict", "")
            print(f"  {record['n']:>3} {record['type']:<9} {record['call'][:8]} {about}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
