#!/usr/bin/env python3
"""What a second model in one server costs: each model's time to its first token and tokens per second when it is alone in a server,
with the other one loaded and idle, and with the other one busy.

usage: two_models.py FIRST[:VOCAB] SECOND[:VOCAB] [--program build/release/vitrine] [--prompt 128] [--new 64] [--clients 4] [--seconds 5]
                     [--rounds 3]

FIRST and SECOND are models; prompts are random ids below VOCAB (default 250). Prints for each case the medians over the rounds of the
median time to the first token of one client, and of the tokens per second of --clients clients, with the ratio to the model alone.
"""
import argparse
import http.client
import json
import random
import statistics
import subprocess
import threading
import time


class Server:
    def __init__(self, program, models):
        (name, model), *others = models.items()
        words = ["--model", model, "--name", name] + [word for other in others for word in ("--models", "=".join(other))]
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--json", *words], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.port = int(json.loads(self.process.stdout.readline())["url"].rsplit(":", 1)[1])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def ask(port, name, o, chance):
    """Seconds to the first token of --new."""
    body = json.dumps({"model": name, "prompt": [chance.randrange(10, o.vocab[name]) for _ in range(o.prompt)], "max_tokens": o.new,
                       "ignore_eos": True, "return_token_ids": True, "stream": True})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{name}: status {response.status}: {response.read(500)}")
    data = response.read1(65536)
    first = time.monotonic() - began
    data += response.read()
    connection.close()
    if not data.endswith(b"data: [DONE]\n\n"):
        raise SystemExit(f"{name}: the stream ended early: {data[-500:]}")
    return first


def under_load(port, names, o, seconds):
    """Tokens per second by model; --clients clients for each."""
    made, lock, end = dict.fromkeys(names, 0), threading.Lock(), time.monotonic() + seconds

    def run(name, seed):
        chance = random.Random(seed)
        while time.monotonic() < end:
            ask(port, name, o, chance)
            with lock:
                made[name] += o.new
    clients = [threading.Thread(target=run, args=(name, i)) for name in names for i in range(o.clients)]
    began = time.monotonic()
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return {name: tokens / (time.monotonic() - began) for name, tokens in made.items()}


def measure(o, loaded, name, busy):
    """Of `name` in a server that has loaded these: first token in ms, tokens per second."""
    server = Server(o.program, loaded)
    try:
        chance = random.Random(7)
        for each in loaded:
            for _ in range(3):  # loads it, and fills what fills once
                ask(server.port, each, o, chance)
        other = threading.Thread(target=under_load, args=(server.port, [n for n in loaded if n != name], o, o.seconds))
        if busy:
            other.start()
        end, firsts = time.monotonic() + o.seconds, []
        while time.monotonic() < end:
            firsts.append(ask(server.port, name, o, chance))
        if busy:
            other.join()
        rates = under_load(server.port, list(loaded) if busy else [name], o, o.seconds)
        return 1e3 * statistics.median(firsts), rates[name]
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("models", nargs=2)
    parser.add_argument("--program", default="build/release/vitrine")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    words = [word.rsplit(":", 1) if ":" in word else [word, "250"] for word in o.models]
    models = {"first": words[0][0], "second": words[1][0]}
    o.vocab = {"first": int(words[0][1]), "second": int(words[1][1])}
    cases = [(name, case) for name in models for case in ("alone", "other idle", "other busy")]
    seen = {key: [] for key in cases}
    for _ in range(o.rounds):
        for name, case in cases:
            loaded = {name: models[name]} if case == "alone" else models
            seen[name, case].append(measure(o, loaded, name, case == "other busy"))
    for (name, case), values in seen.items():
        first, rate = (statistics.median(x) for x in zip(*values))
        alone = [statistics.median(x) for x in zip(*seen[name, "alone"])]
        print(f"{name}, {case}: first token {first:.2f} ms ({first / alone[0]:.2f}), {rate:.0f} tokens/s ({rate / alone[1]:.2f})")


if __name__ == "__main__":
    main()
