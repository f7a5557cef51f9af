"""Rewards from a Python function, for `vitrine.train`: the program's reward command asks this process for them."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CLIENT = """\
import json, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    asked.sendall(sys.stdin.buffer.read())
    asked.shutdown(socket.SHUT_WR)
    told = json.load(asked.makefile(encoding="utf-8"))
if "error" in told:
    sys.exit(told["error"])
print(*map(json.dumps, told["rewards"]), sep="\\n")
"""


@contextmanager
def served(function: Callable[..., Any]) -> Iterator[Rewards]:
    """Calls function(prompts=…, completions=…, finish_reason=…, and the other keys of the lines) from a thread of its own, each with
    a list that has an entry for every answer (None where a line lacks that key), as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="vitrine-") as folder, socket.socket(socket.AF_UNIX) as listening:
        client, path = os.path.join(folder, "ask.py"), os.path.join(folder, "rewards")
        with open(client, "w", encoding="utf-8") as file:
            file.write(_CLIENT)
        listening.bind(path)
        listening.listen()
        server = Rewards(function, f"exec {shlex.join([sys.executable, '-I', '-S', client, path])}")
        threading.Thread(target=server.run, args=(listening,), daemon=True).start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # ends the thread's accept


class Rewards:
    """What the program's command asks. command: that asks this process. error: of the function, when it last raised."""

    def __init__(self, function: Callable[..., Any], command: str) -> None:
        self.function = function
        self.command = command
        self.error: BaseException | None = None

    def run(self, listening: socket.socket) -> None:
        while True:
            try:
                asking, _ = listening.accept()
            except OSError:
                return
            with asking:
                try:
                    told: dict[str, Any] = {"rewards": self.answer(asking.makefile(encoding="utf-8").read())}
                except Exception as error:
                    self.error = error
                    told = {"error": "".join(traceback.format_exception(error))}
                try:
                    asking.sendall(json.dumps(told).encode())
                except OSError:
                    pass  # the program did not wait: it says so

    def answer(self, text: str) -> list[float]:
        lines = [json.loads(line) for line in text.split("\n") if line]
        names = dict.fromkeys(name for line in lines for name in line if name not in ("prompt", "completion"))
        columns = {name: [line.get(name) for line in lines] for name in names}
        rewards = self.function(prompts=[line["prompt"] for line in lines], completions=[line["completion"] for line in lines], **columns)
        found = [float(reward) for reward in rewards]
        if len(found) != len(lines):
            raise ValueError(f"the reward function returned {len(found)} numbers for {len(lines)} answers; expected one for each")
        return found
