#!/usr/bin/env python3
"""Serving beside llama-server: the same file, the same load, one server after the other, in turns.

usage: compare_serving.py --llama-server PATH FILE.gguf:VOCAB ... [--clients 1,8,32,128] [--prompt 128] [--new 64] [--rounds 2]
                          [--rate R] [--vitrine build/release/vitrine] [--load build/release/bench/bench_load] [--threads 2]
                          [--vitrine-flags "--prefix-mb 1"] [--llama-flags "--cache-ram 0"]

VOCAB is the number of tokens of the model: prompts are random ids below it. Each server has as many places as there are clients, so
that none waits for another. Prints for each cell the medians of both servers over the rounds and their ratios: tokens per second
above 1 where vitrine is faster, times below 1 where vitrine is quicker. A line ends with "disturbed" if other work took more than 3 %
of the processors meanwhile: such a figure is not to be kept.
"""
import argparse
import pathlib
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from peers.quiet import Quiet

PATTERN = re.compile(r"([\d.]+) new tokens/s; first token ([\d.]+) ms \(median\), [\d.]+ \(p99\); "
                     r"between tokens ([\d.]+) ms \(median\), ([\d.]+) \(p99\)")
NAMES = ("tokens/s", "first token ms", "between ms", "between p99 ms")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measured(command, port, load):
    """The four numbers of one load on a server that is started for it, and behind them the most MiB of memory that were resident."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
                break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with {server.returncode}") from None
                time.sleep(0.1)
        subprocess.run(load(8), check=True, stdout=subprocess.DEVNULL)  # warm
        out = subprocess.run(load(None), check=True, stdout=subprocess.PIPE, text=True).stdout
        resident = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text())[1]) / 1024
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    return [float(v) for v in PATTERN.search(out).groups()] + [resident]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("models", nargs="+")
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vitrine", default=root / "build/release/vitrine")
    parser.add_argument("--load", default=root / "build/release/bench/bench_load")
    parser.add_argument("--vitrine-flags", default="", help="more of them, in one string")
    parser.add_argument("--llama-flags", default="")
    options = parser.parse_args()
    for model in options.models:
        file, vocab = model.rsplit(":", 1)
        for clients in (int(n) for n in options.clients.split(",")):
            port, threads = str(free_port()), str(options.threads)
            room = str(clients * (options.prompt + options.new + 16))
            servers = {
                "vitrine": [str(options.vitrine), "serve", "--model", file, "--port", port, "--threads", threads, "--parallel", str(clients),
                            *shlex.split(options.vitrine_flags)],
                "llama-server": [options.llama_server, "-m", file, "--port", port, "-t", threads, "-tb", threads, "-np", str(clients),
                                 "-c", room, "-fa", "on", "--no-webui", *shlex.split(options.llama_flags)],
            }

            def load(requests):
                command = [str(options.load), port, "--clients", str(clients), "--requests", str(requests or max(8, 3 * clients)),
                           "--prompt", str(options.prompt), "--new", str(options.new), "--vocab", vocab]
                return command + (["--rate", str(options.rate)] if options.rate and requests is None else [])

            quiet = Quiet()
            runs = {name: [] for name in servers}
            for _ in range(options.rounds):
                for name, command in servers.items():
                    runs[name].append(measured(command, int(port), load))
            medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in runs.items()}
            ours, theirs = medians["vitrine"], medians["llama-server"]
            cells = [f"{name} {a:.1f} / {b:.1f} = {a / b:.2f}" for name, a, b in zip(NAMES + ("MiB",), ours, theirs)]
            disturbed = "  disturbed" if quiet.share_of_others() > 0.03 else ""
            print(f"{pathlib.Path(file).name:22} {clients:4} clients  " + "; ".join(cells) + disturbed, flush=True)


if __name__ == "__main__":
    main()
