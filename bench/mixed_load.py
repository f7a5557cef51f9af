#!/usr/bin/env python3
"""Mixed load on `vitrine serve --exact` with more models than may be loaded at once, so that they are swapped all the time.

usage: mixed_load.py [--program build/release/vitrine] [--model models/tales9m] [--other models/book/gpt2-tales] [--models-max 1]
                     [--clients 8] [--rounds 5] [--seconds 60] [--seed 1]

Each client chooses a model and a kind of request by chance: greedy texts, whole and streamed, which must have the ids of `vitrine
generate --exact`; sampled texts, chats of three APIs, a schema, embeddings, tokens, log-probabilities, gradients, wrong requests; and
streams and bodies that it leaves at a random byte. After each round of --seconds the clients stop and the server is measured at rest.
Prints a line for each round (requests so far, loads, resident memory, open descriptors, threads), then the requests and the errors by
kind. Exits with 1 for a wrong or missing answer, for a text that goes on without its client, and for resident memory,
descriptors or threads that grew after the first round by more than --growth-mb, none and none.
"""
import argparse
import collections
import http.client
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time

BEGINNINGS = ["Once upon a time", "The old king", "In a small village", "There was a girl who", "Long ago, in the woods", "The fox said"]
SCHEMA = {"type": "object", "properties": {"age": {"enum": [7, 70]}}, "required": ["age"], "additionalProperties": False}
BUSY = {429, 503}  # the server says that the client should come again


class Server:
    def __init__(self, o):
        self.names = {"first": o.model, "other": o.other}
        command = [o.program, "serve", "--exact", "--port", "0", "--json", "--model", o.model, "--name", "first", "--models", f"other={o.other}",
                   "--models-max", str(o.models_max), "--cache-mb", "256"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(json.loads(self.process.stdout.readline())["url"].rsplit(":", 1)[1])

    def at_rest(self):
        """Texts that run or wait; loads so far."""
        metrics = ask(self.port, "GET", "/metrics")[1].decode()
        total = lambda name: sum(float(x) for x in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.M))
        busy = {name: int(total("vitrine_" + name)) for name in ("streams_running", "streams_waiting")}
        return {k: v for k, v in busy.items() if v > 0}, int(total("vitrine_model_loads_total"))

    def sizes(self):
        process = pathlib.Path(f"/proc/{self.process.pid}")
        status = (process / "status").read_text()
        return {"MiB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024, "descriptors": len(list((process / "fd").iterdir())),
                "threads": int(re.search(r"Threads:\s+(\d+)", status)[1])}


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def events(data):
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]


class Requests:
    """One method for each kind: takes a generator of chance and a model, returns status and whether the answer is right."""

    def __init__(self, port, expected, new):
        self.port, self.expected, self.new = port, expected, new

    def post(self, path, body, right):
        status, data = ask(self.port, "POST", path, body)
        return status, status == 200 and right(data)

    def greedy(self, chance, model):
        prompt = chance.choice(BEGINNINGS)
        body = {"model": model, "prompt": prompt, "max_tokens": self.new, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
        return self.post("/v1/completions", body, lambda data: json.loads(data)["choices"][0]["token_ids"] == self.expected[model, prompt])

    def greedy_streamed(self, chance, model):
        prompt = chance.choice(BEGINNINGS)
        body = {"model": model, "prompt": prompt, "max_tokens": self.new, "temperature": 0, "return_token_ids": True, "ignore_eos": True,
                "stream": True}

        def right(data):
            ids = [i for event in events(data) for choice in event["choices"] for i in choice.get("token_ids") or []]
            return data.endswith(b"data: [DONE]\n\n") and ids == self.expected[model, prompt]
        return self.post("/v1/completions", body, right)

    def sampled(self, chance, model):
        body = {"model": model, "prompt": chance.choice(BEGINNINGS), "max_tokens": chance.randrange(1, 64), "n": 2, "seed": chance.randrange(9)}
        return self.post("/v1/completions", body, lambda data: len(json.loads(data)["choices"]) == 2)

    def chat(self, chance, model):
        body = {"model": model, "messages": [{"role": "user", "content": "Tell a tale."}], "max_tokens": 16, "stream": True}
        return self.post("/v1/chat/completions", body, lambda data: data.endswith(b"data: [DONE]\n\n"))

    def ollama(self, chance, model):
        body = {"model": model, "messages": [{"role": "user", "content": "Tell a tale."}], "options": {"num_predict": 16}}
        if chance.random() < 0.2:
            body["keep_alive"] = 0
        return self.post("/api/chat", body, lambda data: json.loads(data.decode().splitlines()[-1])["done"])

    def messages(self, chance, model):
        body = {"model": model, "messages": [{"role": "user", "content": "Tell a tale."}], "max_tokens": 16}
        return self.post("/v1/messages", body, lambda data: json.loads(data)["content"][0]["type"] == "text")

    def schema(self, chance, model):
        form = {"type": "json_schema", "json_schema": {"name": "age", "schema": SCHEMA}}
        body = {"model": model, "messages": [{"role": "user", "content": "Age?"}], "response_format": form, "max_tokens": 64}
        return self.post("/v1/chat/completions", body, lambda data: json.loads(json.loads(data)["choices"][0]["message"]["content"])["age"] in (7, 70))

    def embedding(self, chance, model):
        return self.post("/v1/embeddings", {"model": model, "input": BEGINNINGS}, lambda data: len(json.loads(data)["data"]) == len(BEGINNINGS))

    def tokens(self, chance, model):
        text = chance.choice(BEGINNINGS) * chance.randrange(1, 2000)
        return self.post("/tokenize", {"model": model, "content": text}, lambda data: len(json.loads(data)["tokens"]) > 0)

    def score(self, chance, model):
        body = {"model": model, "prompt": "Once upon", "completion": " a time"}
        return self.post("/v1/score", body, lambda data: b"logprob" in data)

    def gradients(self, chance, model):
        return self.post("/v1/attribute", {"model": model, "prompt": "Once upon a", "steps": 2}, lambda data: len(json.loads(data)) > 0)

    def wrong(self, chance, model):
        body = chance.choice([{"model": "nothing", "prompt": "a"}, {"model": model, "prompt": "a", "temperature": -1}, {"model": model}, []])
        status, data = ask(self.port, "POST", "/v1/completions", body)
        return 200 if status in (400, 404) else status, b"error" in data

    def cut_off(self, chance, model):
        """Sends a random part of a request, or reads a random part of its stream, and leaves."""
        body = json.dumps({"model": model, "prompt": chance.choice(BEGINNINGS), "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
        whole = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            if chance.random() < 0.2:
                connection.sendall(whole[:chance.randrange(len(whole))])
            else:
                connection.sendall(whole)
                left = chance.choice([0, 1, chance.randrange(20000)])
                while left > 0 and (data := connection.recv(min(left, 65536))):
                    left -= len(data)
            if chance.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        return 200, True


KINDS = {"greedy": 4, "greedy_streamed": 4, "sampled": 2, "chat": 1, "ollama": 2, "messages": 1, "schema": 1, "embedding": 1, "tokens": 1,
         "score": 1, "gradients": 1, "wrong": 2, "cut_off": 4}


def client(requests, kinds, chance, end, counts, failures, lock):
    while time.monotonic() < end:
        kind, model = chance.choices(kinds, [KINDS[k] for k in kinds])[0], chance.choice(["first", "other"])
        try:
            status, right = getattr(requests, kind)(chance, model)
            failure = None if right else "busy" if status in BUSY else f"status {status}" if status != 200 else "wrong answer"
        except (OSError, ValueError, KeyError, IndexError, http.client.HTTPException) as error:
            failure = f"{type(error).__name__}: {error}"
        with lock:
            counts[kind] += 1
            if failure:
                failures[kind, failure] += 1
        if failure == "busy":
            time.sleep(0.1)


def offline(program, model, new):
    ids = {}
    for prompt in BEGINNINGS:
        command = [program, "generate", prompt, "--model", model, "--max-tokens", str(new), "--ignore-eos", "--exact", "--json"]
        ids[prompt] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)["tokens"]
    return ids


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--program", default="build/release/vitrine")
    parser.add_argument("--model", default="models/tales9m")
    parser.add_argument("--other", default="models/book/gpt2-tales")
    parser.add_argument("--models-max", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--new", type=int, default=24, help="tokens of greedy texts")
    parser.add_argument("--growth-mb", type=int, default=64)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    expected = {(name, prompt): ids for name, model in (("first", o.model), ("other", o.other)) for prompt, ids in offline(o.program, model, o.new).items()}
    server = Server(o)
    counts, failures, lock, rounds = collections.Counter(), collections.Counter(), threading.Lock(), []
    try:
        requests = Requests(server.port, expected, o.new)
        for i in range(o.rounds):
            end = time.monotonic() + o.seconds
            clients = [threading.Thread(target=client, args=(requests, o.kinds, random.Random(f"{o.seed} {i} {n}"), end, counts, failures, lock))
                       for n in range(o.clients)]
            for each in clients:
                each.start()
            for each in clients:
                each.join()
            for model in ("first", "other", "first"):  # every round ends with the same model
                requests.greedy(random.Random(1), model)
            for _ in range(600):  # what the last clients left may still be ending
                busy, loads = server.at_rest()
                sizes = server.sizes()
                if not busy and sizes["descriptors"] <= (rounds or [sizes])[0]["descriptors"]:
                    break
                time.sleep(0.1)
            rounds.append(sizes)
            print(f"round {i + 1}: {sum(counts.values())} requests, {loads} loads, " + ", ".join(f"{v} {k}" for k, v in rounds[-1].items())
                  + (f", left behind: {busy}" if busy else ""), flush=True)
            if busy:
                failures["rest", f"left behind: {busy}"] += 1
        if server.process.poll() is not None:
            failures["server", f"ended with {server.process.returncode}"] += 1
    finally:
        server.process.terminate()
        code = server.process.wait()
    print("requests: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    for (kind, failure), n in sorted(failures.items()):
        print(f"{n} {kind}: {failure}")
    grown = {k: rounds[-1][k] - rounds[0][k] for k in rounds[0]}
    print("grown since the first round: " + ", ".join(f"{v} {k}" for k, v in grown.items()))
    if code != 0:
        sys.exit(f"mixed_load.py: the server ended with {code}")
    if any(failure != "busy" for _, failure in failures) or grown["MiB"] > o.growth_mb or grown["descriptors"] > 0 or grown["threads"] > 0:
        sys.exit("mixed_load.py: see above what failed or grew")


if __name__ == "__main__":
    main()
