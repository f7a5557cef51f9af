#!/usr/bin/env python3
"""Kills or drains one of two replicas behind a proxy again and again while clients ask, and holds every answer to the offline one.

usage: kill_replicas.py [--proxy haproxy|nginx] [--program build/release/vitrine] [--model models/tales9m] [--kills 100] [--drains 10]
                        [--clients 8] [--new 96] [--seed 1]

Both sides compute with --exact: without it a step of more rows may take other kernels, and a near tie may fall the other way.
The proxy (Debian: haproxy, nginx) runs with the configuration that docs/serving.md shows, its addresses replaced. Each client has a key of
its own and asks one greedy completion after the other, every second one streamed. What fails so that a client can see it is asked again:
a refused or broken connection, a body that ends early, a stream that ends without "data: [DONE]" or says an error, and the statuses 429,
502, 503 and 504. One replica after the other, by chance, is killed (SIGKILL), started again at once or up to four seconds later, and
awaited at /health; then as many as asked are drained (SIGTERM) while the clients go on. Exits with 1 for an answer that is not the offline
one, for the beginning of a stream that is not the offline one's, for an answer that draining cut off, for any other failure, or if the
kills cut no answer off.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGINNINGS = ["Once upon a time", "The old king", "In a small village", "There was a girl who", "Long ago, in the woods", "A poor woodcutter",
              "The fox said to the hen", "One winter evening", "The queen looked into", "Beyond the mountains", "A merchant had", "The giant"]
PASSING = {429, 502, 503, 504}


class Visible(Exception):
    """A failure that any client notices; the text is its kind."""


class Wrong(Exception):
    pass


def free_ports(n):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def offline(options, prompt):
    command = [options.program, "generate", prompt, "--model", options.model, "--max-tokens", str(options.new), "--json", "--exact"]
    made = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return made["text"], made["finish_reason"]


def wait_for_health(process, port):
    for _ in range(1200):
        if process.poll() is not None:
            raise Wrong(f"{process.args[0]} ended by itself with {process.returncode}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            asked.request("GET", "/health")
            if asked.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise Wrong(f"{process.args[0]} did not become healthy within a minute")


class Replica:
    def __init__(self, options, port, keys):
        self.port = port
        self.command = [options.program, "serve", "--model", options.model, "--port", str(port), "--threads", "1", "--api-key-file", keys,
                        "--exact", "--allow-host", "vitrine"]  # what nginx calls it
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_health(self.process, self.port)

    def end(self, with_signal):
        if self.process.poll() is not None:
            raise Wrong(f"a replica ended by itself with {self.process.returncode}")
        self.process.send_signal(with_signal)
        code = self.process.wait(timeout=60)
        if with_signal == signal.SIGTERM and code != 0:
            raise Wrong(f"a drained replica ended with {code}")


NGINX = """daemon off; error_log {0}/error.log; pid {0}/pid; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi; uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
  {1}
}}
"""


def start_proxy(name, port, replicas, folder):
    """With the configuration of the documentation, and these ports."""
    text = re.search(rf"```{name}\n(.*?)```", (ROOT / "docs/serving.md").read_text(), re.S)[1]
    listen = {"haproxy": ("bind :80", f"bind 127.0.0.1:{port}"), "nginx": ("listen 80;", f"listen 127.0.0.1:{port};")}[name]
    for shown, used in [listen] + [(f"10.0.0.{i + 1}:8080", f"127.0.0.1:{replica.port}") for i, replica in enumerate(replicas)]:
        if shown not in text:
            raise Wrong(f"the configuration in docs/serving.md has no {shown!r}")
        text = text.replace(shown, used)
    file = folder / "configuration"
    file.write_text(NGINX.format(folder, text) if name == "nginx" else text)
    command = {"haproxy": ["haproxy", "-db", "-f", str(file)], "nginx": ["nginx", "-c", str(file)]}[name]
    proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_health(proxy, port)
    return proxy


def lines(response):
    """Unlike the response's own iterator, this says where a body in chunks ends early (IncompleteRead)."""
    left = b""
    while piece := response.read1(65536):
        *whole, left = (left + piece).split(b"\n")
        for line in whole:
            yield line.decode().rstrip("\r")


def streamed_text(response, expected):
    text, finish = "", None
    for line in lines(response):
        if line == "data: [DONE]":
            response.read()  # the chunk that ends the body
            return text, finish
        if not line.startswith("data: "):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise Visible("an error in the stream")
        for choice in event["choices"]:
            text += choice["text"]
            finish = choice["finish_reason"] or finish
        if not expected.startswith(text):
            raise Wrong(f"a stream began with {text!r}; offline it is {expected!r}")
    raise Visible("a stream without [DONE]")


def ask(connection, key, prompt, new, stream, expected):
    body = {"prompt": prompt, "max_tokens": new, "temperature": 0, "stream": stream}
    began = False
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer " + key})
        response = connection.getresponse()
        if response.status in PASSING:
            response.read()
            raise Visible(f"status {response.status}")
        if response.status != 200:
            raise Wrong(f"status {response.status}: {response.read(500)}")
        began = True
        if stream:
            return streamed_text(response, expected)
        choice = json.loads(response.read())["choices"][0]
        return choice["text"], choice["finish_reason"]
    except (OSError, http.client.HTTPException) as e:
        raise Visible(("a cut answer: " if began else "no answer: ") + type(e).__name__) from e


def client(options, port, number, expected, phase, done, counts, lock):
    """Asks until it is done, and goes on with a question until it is answered."""
    chance = random.Random(options.seed * 1000 + number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    asked = 0
    while not done.is_set():
        prompt, stream = chance.choice(BEGINNINGS), asked % 2 == 0
        asked += 1
        while True:
            began_in = phase[0]
            try:
                answer = ask(connection, f"key-{number}", prompt, options.new, stream, expected[prompt][0])
                if answer != expected[prompt]:
                    raise Wrong(f"{prompt!r} was answered with {answer}; offline it is {expected[prompt]}")
                with lock:
                    counts[(began_in, "streamed answers" if stream else "whole answers")] += 1
                break
            except Visible as failure:
                with lock:
                    counts[(began_in, str(failure))] += 1
                connection.close()
                time.sleep(chance.uniform(0.05, 0.3))
    connection.close()


def run(options, folder):
    expected = {prompt: offline(options, prompt) for prompt in BEGINNINGS}
    keys = folder / "keys"
    keys.write_text("".join(f"client-{i} key-{i}\n" for i in range(options.clients)))
    port, *ports = free_ports(3)
    replicas = [Replica(options, p, str(keys)) for p in ports]
    chance, done, counts, lock = random.Random(options.seed), threading.Event(), collections.Counter(), threading.Lock()
    phase = ["kills"]
    proxy = None
    try:
        for replica in replicas:
            replica.start()
        proxy = start_proxy(options.proxy, port, replicas, folder)
        with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
            clients = [pool.submit(client, options, port, i, expected, phase, done, counts, lock) for i in range(options.clients)]
            try:
                for end in [signal.SIGKILL] * options.kills + [signal.SIGTERM] * options.drains:
                    if end == signal.SIGTERM:
                        time.sleep(6)  # until either proxy knows that both are there
                        phase[0] = "drains"
                    time.sleep(chance.uniform(0.2, 1.5))
                    for each in clients:
                        if each.done():
                            each.result()
                    if proxy.poll() is not None:
                        raise Wrong(f"{options.proxy} ended with {proxy.returncode}")
                    victim = chance.choice(replicas)
                    victim.end(end)
                    time.sleep(chance.choice([0, chance.uniform(0, 4)]))  # shorter than the proxy's checks take, or longer
                    victim.start()
            finally:
                done.set()
            for each in clients:
                each.result()
    finally:
        for process in [proxy] + [replica.process for replica in replicas]:
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
    return counts


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--proxy", choices=["haproxy", "nginx"], default="haproxy")
    parser.add_argument("--program", default=str(ROOT / "build/release/vitrine"))
    parser.add_argument("--model", default=str(ROOT / "models/tales9m"))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--drains", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--new", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            counts = run(options, pathlib.Path(folder))
    except Wrong as e:
        sys.exit(f"kill_replicas.py: {e}")
    print(f"{options.proxy}, {options.clients} clients, {time.monotonic() - began:.0f} s; no wrong answer")
    for phase, ends in ("kills", options.kills), ("drains", options.drains):
        print(f"{ends} {phase}")
        for (at, kind), count in sorted(counts.items()):
            if at == phase:
                print(f"  {count:6} {kind}")
    failed = {phase: sum(n for (at, kind), n in counts.items() if at == phase and not kind.endswith("answers")) for phase in ("kills", "drains")}
    if options.kills and failed["kills"] == 0:
        sys.exit("kill_replicas.py: no answer was cut off, so this shows nothing; ask for more --new tokens")
    if failed["drains"]:
        sys.exit("kill_replicas.py: draining made requests fail")


if __name__ == "__main__":
    main()
