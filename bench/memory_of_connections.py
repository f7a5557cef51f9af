#!/usr/bin/env python3
"""The memory that `vitrine serve` takes for a connection that idles and for one that streams an answer.

usage: memory_of_connections.py [--vitrine build/release/vitrine] [--model tests/golden/models/llama/model] [--connections 1000]
                                [--new 100]

First each connection asks for /health and stays open. Then, at a new server, each sends a request for a stream but for its last byte;
the last bytes are sent together. Once all but one stream wait for their turn, once they all run at the same time. Memory is what is
resident besides mapped files, at most. The model of the tests is so small that little of it is keys and values; it is so fast that much of
the streams' text waits to be sent.
"""
import argparse
import contextlib
import json
import pathlib
import random
import re
import resource
import selectors
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB = 1024


def anonymous(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * KIB


def connected(port):
    made = socket.create_connection(("127.0.0.1", port))
    made.settimeout(60)
    return made


def is_healthy(connection):
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
        raise RuntimeError("/health was not answered with 200")


class Peak(threading.Thread):
    """The most memory, and the most of keys and values in it, from now until stop()."""

    def __init__(self, pid, port):
        super().__init__()
        self.pid, self.port, self.most, self.cache, self.running, self.waiting, self.ended = pid, port, 0, 0, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            self.most = max(self.most, anonymous(self.pid))
            text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
            told = {name: int(float(value)) for name, value in re.findall(r"^vitrine_(\w+) ([\d.e+]+)$", text, re.M)}
            self.cache = max(self.cache, told["cache_bytes"])
            self.running = max(self.running, told["streams_running"])
            self.waiting = max(self.waiting, told["streams_waiting"])

    def stop(self):
        self.ended.set()
        self.join()


def stream_all(port, n, new, vocab):
    chance = random.Random(1)
    connections, requests = [], []
    for _ in range(n):
        body = json.dumps({"prompt": [chance.randrange(3, vocab) for _ in range(16)], "max_tokens": new, "ignore_eos": True, "stream": True,
                           "temperature": 0})
        requests.append(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        connections.append(connected(port))
        connections[-1].sendall(requests[-1][:-1])
    for connection, request in zip(connections, requests):
        connection.sendall(request[-1:])
    left, ends = selectors.DefaultSelector(), {}
    for connection in connections:
        left.register(connection, selectors.EVENT_READ)
        ends[connection] = b""
    while ends:
        for key, _ in left.select(60) or exit("the streams stand still"):
            piece = key.fileobj.recv(65536)
            ends[key.fileobj] = (ends[key.fileobj] + piece)[-64:]
            if not piece:
                raise RuntimeError("a stream was cut off")
            if b"data: [DONE]" in ends[key.fileobj]:
                left.unregister(key.fileobj)
                del ends[key.fileobj]
    for connection in connections:
        connection.close()


@contextlib.contextmanager
def serving(o, parallel):
    """A server that has answered once, so that what is made once is there: its process id, its port, the model's vocabulary."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([o.vitrine, "serve", "--model", o.model, "--port", str(port), "--parallel", str(parallel), "--queue",
                               str(o.connections), "--prefix-mb", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        vocab = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models"))["data"][0]["meta"]["n_vocab"]
        stream_all(port, 1, o.new, vocab)
        yield server.pid, port, vocab
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--vitrine", default=ROOT / "build/release/vitrine")
    parser.add_argument("--model", default=ROOT / "tests/golden/models/llama/model")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--new", type=int, default=100)
    o = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    n = o.connections
    with serving(o, n) as (pid, port, _):
        before = anonymous(pid)
        idle = [connected(port) for _ in range(n)]
        for connection in idle:
            is_healthy(connection)
        time.sleep(0.3)
        print(f"{n} idle connections that were served: {(anonymous(pid) - before) / KIB / n:.1f} KB each", flush=True)
    for parallel in 1, n:
        with serving(o, parallel) as (pid, port, vocab):
            before, peak = anonymous(pid), Peak(pid, port)
            try:
                stream_all(port, n, o.new, vocab)
            finally:
                peak.stop()
            print(f"{n} streams, {peak.running} of them at once while {peak.waiting} wait: {(peak.most - before) / KIB / n:.1f} KB each "
                  f"at most, {peak.cache / KIB / n:.1f} KB of them keys and values", flush=True)


if __name__ == "__main__":
    main()
