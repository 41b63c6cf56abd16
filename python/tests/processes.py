"""Runs a script as the ranks of a job, in processes that can be killed.

A server that has already imported torch forks the ranks, so a job of three starts in half a second.
Their environment is torchrun's. Each rank prints into a file of its own. So that no test depends on
timing, a rank can be made to stop once it has printed a given step; then it is killed.

As a program: SCRIPT ARGUMENT..., which torchrun and others start as they would start the script
alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import time
from typing import Any

import servers

LINE = re.compile(r"step (\d+) rank (\d+) of (\d+): samples \[([\d, ]*)\]")

PRELOADED = ["stoker", "torch", "accelerate", "lightning.pytorch", "transformers.trainer"]
"""Those that are installed: importing them is most of a small job's time."""

STOP_AT = "STOKER_TEST_STOP_AT"
"""The words of this variable are a step, a rank and a file: that rank prints that step, makes the
file, and nothing more ever happens in it. Once only: not if the file is there, as torchrun starts
ranks again with the same environment."""


class Output:
    """Standard output that stops after a line."""

    def __init__(self, file: Any, begin: str, mark: Any = lambda: None) -> None:
        self._file, self._begin, self._mark, self._found = file, begin, mark, False

    def write(self, text: str) -> int:
        self._found |= text.startswith(self._begin)
        self._file.write(text)
        if self._found and text.endswith("\n"):
            self._mark()
            self._file.flush()
            while True:
                time.sleep(1)
        return len(text)

    def flush(self) -> None:
        self._file.flush()


def run_script(script: str, arguments: list[str]) -> None:
    words = os.environ.get(STOP_AT, "").split(maxsplit=2)
    if words and not os.path.exists(words[2]):
        mark = pathlib.Path(words[2]).touch
        sys.stdout = Output(sys.stdout, f"step {words[0]} rank {words[1]} of ", mark)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def _child(script: str, arguments: list[str], environment: dict[str, str], output: str) -> None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    import torch  # imported already, unless another test started the server

    torch.set_num_threads(1)
    run_script(script, arguments)


def wait_for(found: Any, process: Any, text: Any, seconds: float = 90) -> None:
    """Until found(); not for ever, and not when the process has ended."""
    end = time.monotonic() + seconds
    while not found():
        assert process.is_alive() and time.monotonic() < end, text()
        time.sleep(0.01)


def start_ranks(
    text: str, world: int, init: object, *arguments: object
) -> list[subprocess.Popen[str]]:
    """Starts a program text as so many ranks, in new processes. Its arguments: these, rank, world
    and init."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", text, *map(str, (*arguments, rank, world, init))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]


def run_ranks(text: str, world: int, init: object, *arguments: object) -> None:
    """The same, and waits until all have ended, well."""
    for child in start_ranks(text, world, init, *arguments):
        output = child.communicate(timeout=220)[0]
        assert child.returncode == 0, output


class Job:
    """A script that runs as so many ranks; killed where the with-block ends."""

    def __init__(
        self,
        folder: pathlib.Path,
        world: int,
        script: pathlib.Path,
        *arguments: object,
        stop_at: int | None = None,
    ):
        """stop_at: a step, at which the last rank stands still."""
        self._stop_at = stop_at
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        number = len(list(folder.glob("job*.rank0")))
        self.outputs = [folder / f"job{number}.rank{rank}" for rank in range(world)]
        port = str(servers.free_port())
        self.ranks = []
        for rank, output in enumerate(self.outputs):
            environment = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                STOP_AT: f"{stop_at} {world - 1} {folder}/job{number}.stopped" if stop_at else "",
            }
            words = (str(script), [str(word) for word in arguments], environment, str(output))
            self.ranks.append(context.Process(target=_child, args=words))
        for process in self.ranks:
            process.start()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in range(len(self.ranks)):
            self.kill(rank)

    def kill(self, rank: int) -> None:
        """Like kill -9, which no handler can catch."""
        process = self.ranks[rank]
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()

    def text(self) -> str:
        return "\n".join(path.read_text() for path in self.outputs if path.exists())

    def kill_where_it_stopped(self) -> None:
        """When all ranks have reached that step, the checkpoint of the step before is complete."""

        def all_are_there() -> bool:
            return len(
                {rank for step, rank, *_ in lines(self.text()) if step == self._stop_at}
            ) == (len(self.ranks))

        wait_for(all_are_there, self.ranks[-1], self.text)
        self.kill(len(self.ranks) - 1)

    def wait(self, seconds: float = 90) -> None:
        """Until all ranks have ended, well."""
        for process in self.ranks:
            process.join(seconds)
        assert [process.exitcode for process in self.ranks] == [0] * len(self.ranks), self.text()


def thread_names() -> list[str]:
    """The child processes of this process, sorted, without those that end meanwhile."""
    names = []
    for path in pathlib.Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(path.read_text().strip())
    return sorted(names)


def ranks_of(agent: int) -> dict[int, int]:
    """Rank -> process of the ranks that torchrun has started."""
    found = {}
    for child in pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        for variable in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(child)
    return found


class Torchrun:
    """torchrun and a script's ranks under it; all are killed where the with-block ends."""

    def __init__(
        self,
        world: int,
        output: pathlib.Path,
        script: pathlib.Path,
        *arguments: object,
        stop_at: int | None = None,
        restarts: int = 0,
    ):
        """stop_at: a step, at which the last rank stands still, once."""
        self._output, self._world, self._stop_at = output, world, stop_at
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)]
        words += ["--max-restarts", str(restarts), "--standalone", __file__, str(script)]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            STOP_AT: f"{stop_at} {world - 1} {output}.stopped" if stop_at else "",
            # A store for each start: in a shared one gloo would find the addresses of dead ranks.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        with open(output, "w") as file:
            self._agent = subprocess.Popen(
                [*words, *map(str, arguments)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Torchrun:
        return self

    def __exit__(self, *_: object) -> None:
        if self._agent.poll() is None:
            os.killpg(self._agent.pid, signal.SIGKILL)
            self._agent.wait()

    def is_alive(self) -> bool:
        return self._agent.poll() is None

    def kill_where_it_stopped(self) -> None:
        """Kills the last rank with SIGKILL when all ranks have reached that step."""
        step, world = self._stop_at, self._world
        begin = [f"step {step} rank {rank} of {world}" for rank in range(world)]
        text = self._output.read_text
        wait_for(lambda: all(it in text() for it in begin), self, text)
        os.kill(ranks_of(self._agent.pid)[self._world - 1], signal.SIGKILL)

    def wait(self, seconds: float = 300) -> int:
        return self._agent.wait(seconds)


def lines(text: str) -> list[tuple[int, int, int, list[int]]]:
    """What ranks printed: step, rank, world size, ids."""
    return [
        (int(step), int(rank), int(world), [int(number) for number in ids.split(",")])
        for step, rank, world, ids in LINE.findall(text)
    ]


def check_lines(text: str, want: list[list[int]]) -> None:
    """Checks that each rank had its slice of each global batch, for any world size and any number
    of attempts, and that in some world all ranks had it. want: the global batches of an
    uninterrupted run.

    A rank prints its batch before it trains on it, so each step that is part of a checkpoint was
    printed by all ranks."""
    seen: dict[tuple[int, int], set[int]] = {}
    for step, rank, world, ids in lines(text):
        share = len(want[step - 1]) // world
        assert ids == want[step - 1][rank * share : (rank + 1) * share], (step, rank, world)
        seen.setdefault((step, world), set()).add(rank)
    for step in range(1, len(want) + 1):
        assert any(len(seen.get((step, world), ())) == world for world in range(1, 9)), step


History = tuple[tuple[int, int | None], ...]

# 2 ranks, one killed in the middle of epoch 0; 3 ranks, one killed in epoch 1; 1 to the end.
RESIZED: History = ((2, 4), (3, 11), (1, None))


def kill_and_resize(
    folder: pathlib.Path,
    want: list[list[int]],
    script: pathlib.Path,
    *arguments: object,
    history: History = RESIZED,
) -> None:
    """Runs a job with each of these numbers of ranks, one after the other: kills the last rank
    at a step, and then the ranks that wait for it. An argument may be a function of the number
    of ranks."""
    text, begin = "", 1
    for world, stop_at in history:
        words = [word(world) if callable(word) else word for word in arguments]
        with Job(folder, world, script, *words, stop_at=stop_at) as job:
            if stop_at is None:
                job.wait()
            else:
                job.kill_where_it_stopped()
        text += job.text()
        end = stop_at or len(want)
        assert {step for step, *_ in lines(job.text())} == set(range(begin, end + 1))
        begin = end  # its checkpoint is of the step before
    check_lines(text, want)


if __name__ == "__main__":
    run_script(sys.argv[1], sys.argv[2:])
