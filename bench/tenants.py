#!/usr/bin/env python3
"""What one client of `vitrine serve` does to another: time to the first token and tokens per second of a client with a key of
its own, undisturbed, under each attack and under all together, and the server's resident memory. The attacks come from a process
that leaves processor time to the others first, for in earnest they would come from another machine.

  bench/tenants.py [--program build/release/vitrine] [--model models/tales9m] [--seconds 6] [--only NAME ...]
"""
import argparse
import http.client
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time

ATTACKER = "127.0.0.2"  # its address; the other client has 127.0.0.1
SLOW_GRAMMAR = "root ::= (s s s s)*\ns ::= [a-z ]* | [a-z ]* s\n"
STORY = "Once upon a time there was a little girl who had a red ball. "


class Server:
    def __init__(self, program, model, flags):
        self.folder = tempfile.TemporaryDirectory()
        keys = os.path.join(self.folder.name, "keys")
        with open(keys, "w", encoding="ascii") as file:
            file.write("other other-key\nattacker attacker-key\n")
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "--json", "--api-key-file", keys, "--model", model, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(json.loads(self.process.stdout.readline())["url"].rsplit(":", 1)[1])

    def memory(self):
        """Resident bytes: now, and at most since reset_peak()."""
        values = {}
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(("VmRSS", "VmHWM")):
                    values[line[:5]] = int(line.split()[1]) * 1024
        return values["VmRSS"], values["VmHWM"]

    def reset_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def stream(port, seconds, first, rates, failures):
    """Streams one answer after the other."""
    end = time.monotonic() + seconds
    body = json.dumps({"prompt": STORY, "max_tokens": 400, "ignore_eos": True, "stream": True, "seed": 1})
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            c = socket.create_connection(("127.0.0.1", port), timeout=60)
            c.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer other-key\r\nConnection: close"
                       f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
            tokens, begin, all_of_it = 0, None, b""
            while data := c.recv(1 << 16):
                n = data.count(b'"choices":[{')
                if n and begin is None:
                    begin = time.monotonic()
                    first.append(begin - began)
                    n -= 1
                tokens += n
                all_of_it = (all_of_it + data)[-200:]
            c.close()
            if begin is None or b"[DONE]" not in all_of_it:
                failures.append(all_of_it)
            elif tokens:
                rates.append(tokens / (time.monotonic() - begin))
        except OSError as error:
            failures.append(str(error))


def ask(port, method, path, body=None, seconds=60):
    """Status and length of the answer; 0 for none."""
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds, source_address=(ATTACKER, 0))
        c.request(method, path, body, {"Authorization": "Bearer attacker-key", "Content-Type": "application/json"})
        answer = c.getresponse()
        length = 0
        while data := answer.read(1 << 20):
            length += len(data)
        c.close()
        return answer.status, length
    except (OSError, http.client.HTTPException):
        return 0, 0


def repeated(path, request, threads):
    """An attack that posts the same again and again."""
    body = json.dumps(request).encode()

    def attack(port, stop, statuses):
        def run():
            while not stop.is_set():
                status, _ = ask(port, "POST", path, body)
                statuses[status] = statuses.get(status, 0) + 1
                if status != 200:
                    time.sleep(0.02)
        workers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        return workers
    return attack


def half_open(port, stop, statuses):
    """Connections that send half of a request."""
    def run():
        held = []
        while not stop.is_set():
            try:
                c = socket.socket()
                c.bind(("127.0.0.3", 0))  # so that the other attacks have an address that is not full
                c.settimeout(1)
                c.connect(("127.0.0.1", port))
                c.sendall(b"GET / HTTP/1.1\r\nHo")
                held.append(c)
                statuses["opened"] = statuses.get("opened", 0) + 1
                time.sleep(0.0002)
            except OSError:
                time.sleep(0.01)
            if len(held) > 6000:
                for c in held:
                    c.close()
                held = []
        for c in held:
            c.close()
    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    return [worker]


ATTACKS = {
    "tokenize 15 MB with pieces": repeated("/tokenize", {"content": "\u4e2d" * 2_500_000, "with_pieces": True,
                                                         "return_token_strs": True}, 4),
    "apply-template 15 MB": repeated("/apply-template", {"messages": [{"role": "user", "content": "abc def " * 1_900_000}]}, 2),
    "slow grammar": repeated("/v1/completions", {"prompt": STORY, "max_tokens": 500, "grammar": SLOW_GRAMMAR}, 4),
    "attribute, 900 tokens, 256 steps": repeated("/v1/attribute", {"prompt": STORY * 56, "steps": 256}, 4),
    "200 long streams": repeated("/v1/completions", {"prompt": STORY, "max_tokens": 900, "ignore_eos": True}, 200),
    "half-open connections": half_open,
}


def attack(names, port, stop, told):
    os.nice(10)
    statuses = {}
    workers = [w for name in names for w in ATTACKS[name](port, stop, statuses)]
    stop.wait()
    end = time.monotonic() + 10
    for worker in workers:
        worker.join(timeout=max(0, end - time.monotonic()))
    told.put(statuses)


def measure(server, names, seconds, calm=1.0):
    server.reset_peak()
    stop, told = multiprocessing.Event(), multiprocessing.Queue()
    attacker = multiprocessing.Process(target=attack, args=(names, server.port, stop, told), daemon=True)
    attacker.start()
    time.sleep(calm if names else 0)
    first, rates, failures, health = [], [], [], []
    client = threading.Thread(target=stream, args=(server.port, seconds, first, rates, failures))
    client.start()
    while client.is_alive():
        began = time.monotonic()
        try:
            c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            c.request("GET", "/health")
            ok = c.getresponse().status == 200
            c.close()
        except (OSError, http.client.HTTPException):
            ok = False
        health.append((ok, time.monotonic() - began))
        time.sleep(0.2)
    stop.set()
    peak = server.memory()[1]
    statuses = told.get()
    attacker.terminate()
    time.sleep(1)
    median = lambda values, factor=1.0: round(factor * statistics.median(values), 1) if values else None
    return {"first_token_ms": median(first, 1e3), "tokens_per_s": median(rates), "answers": len(rates),
            "failures": len(failures), "health_failures": sum(not ok for ok, _ in health),
            "health_ms": round(1e3 * max(t for _, t in health), 1), "peak_mib": peak >> 20,
            "end_mib": server.memory()[0] >> 20, "statuses": statuses}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/vitrine")
    parser.add_argument("--model", default="models/tales9m")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--only", nargs="*", help="parts of the names of attacks")
    parser.add_argument("--flag", action="append", default=[], help="a flag of the server: --flag=--parallel=32")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    names = [n for n in ATTACKS if not o.only or any(word in n for word in o.only)]
    rows = [("undisturbed", [])] + [(n, [n]) for n in names] + ([("all together", names)] if len(names) > 1 else [])
    if not o.json:
        print("| attack | first token, ms | tokens/s | failed | /health failed, slowest ms | memory at most, MiB | after, MiB |"
              "\n| --- | --- | --- | --- | --- | --- | --- |")
    for title, attacks in rows:
        server = Server(o.program, o.model, o.flag)
        try:
            row = measure(server, attacks, o.seconds)
        finally:
            server.stop()
        if o.json:
            print(json.dumps({"attack": title, **row}), flush=True)
        else:
            print(f"| {title} | {row['first_token_ms']} | {row['tokens_per_s']} | {row['failures']} of "
                  f"{row['failures'] + row['answers']} | {row['health_failures']}, {row['health_ms']} | {row['peak_mib']} | "
                  f"{row['end_mib']} |", flush=True)


if __name__ == "__main__":
    main()
