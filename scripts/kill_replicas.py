#!/usr/bin/env python3
"""Two replicas of `vitrine serve` behind a proxy, with clients that stream greedy completions and try again when one breaks off, while
one replica after the other is killed or drained and started again. Every answer that ends must be the right one.

    kill_replicas.py --program build/release/vitrine --proxy nginx|haproxy [--kills 100] [--clients 8]

Prints what happened; exits with 1 for a wrong answer, or for a request that was broken off by draining (SIGTERM). Needs nginx or HAProxy.
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time

NGINX = """
daemon off; error_log {folder}/error.log; pid {folder}/pid; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream vitrine {{
    {servers}
    keepalive 64;
  }}
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 16m;
    location / {{
      proxy_pass http://vitrine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host localhost;
      proxy_buffering off;
      proxy_read_timeout 1h;
      proxy_next_upstream error;
    }}
  }}
}}
"""

HAPROXY = """
defaults
  mode http
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  option redispatch
  retries 2
  retry-on conn-failure
frontend api
  bind 127.0.0.1:{port}
  default_backend vitrine
backend vitrine
  balance roundrobin
  option httpchk
  http-check send meth GET uri /health ver HTTP/1.1 hdr Host localhost
  {servers}
"""

PROMPTS = ["Once upon a time", "The old king had", "In the forest", "A fox and a crow", "There was once a girl"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def request(prompt):
    return json.dumps({"prompt": prompt, "max_tokens": 48, "temperature": 0, "stream": True})


class BrokenOff(Exception):
    pass


def ask(port, prompt):
    """The text of a streamed completion. BrokenOff if it has no end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", request(prompt), {"Content-Type": "application/json", "Host": "localhost"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise BrokenOff(f"status {answer.status}")
        text, ended = "", False
        for line in answer:
            line = line.strip()
            if line == b"data: [DONE]":
                ended = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise BrokenOff("an error in the stream")
                text += "".join(choice["text"] for choice in event["choices"])
        if not ended:
            raise BrokenOff("no end")
        return text
    except (OSError, http.client.HTTPException) as error:
        raise BrokenOff(str(error)) from error
    finally:
        connection.close()


class Replica:
    def __init__(self, program, port):
        self.program, self.port, self.process = program, port, None
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.program, "serve", "--port", str(self.port)], stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("a replica does not start")

    def end(self, with_signal):
        self.process.send_signal(with_signal)
        return self.process.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/vitrine")
    parser.add_argument("--proxy", choices=["nginx", "haproxy"], default="nginx")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--drains", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    o = parser.parse_args()
    program = os.path.abspath(o.program)

    replicas = [Replica(program, free_port()) for _ in range(2)]
    right = {prompt: ask(replicas[0].port, prompt) for prompt in PROMPTS}
    port = free_port()
    folder = tempfile.mkdtemp()
    if o.proxy == "nginx":
        servers = " ".join(f"server 127.0.0.1:{r.port} max_fails=1 fail_timeout=1s;" for r in replicas)
        text, command = NGINX, ["nginx", "-c", f"{folder}/conf"]
    else:
        servers = "\n  ".join(f"server s{i} 127.0.0.1:{r.port} check inter 200ms" for i, r in enumerate(replicas))
        text, command = HAPROXY, ["haproxy", "-f", f"{folder}/conf"]
    with open(f"{folder}/conf", "w") as file:
        file.write(text.format(folder=folder, servers=servers, port=port))
    proxy = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(1)

    done, counts, lock = threading.Event(), {"right": 0, "wrong": 0, "broken off": 0, "broken off while draining": 0}, threading.Lock()
    draining = threading.Event()

    def client(seed):
        chosen = random.Random(seed)
        while not done.is_set():
            prompt = chosen.choice(PROMPTS)
            while True:
                under_drain = draining.is_set()
                try:
                    text = ask(port, prompt)
                    with lock:
                        counts["right" if text == right[prompt] else "wrong"] += 1
                    break
                except BrokenOff:
                    with lock:
                        counts["broken off while draining" if under_drain else "broken off"] += 1
                    time.sleep(0.02)

    clients = [threading.Thread(target=client, args=(i,)) for i in range(o.clients)]
    for thread in clients:
        thread.start()
    chosen = random.Random(1)
    for kill in range(o.kills):
        time.sleep(chosen.uniform(0.05, 0.5))
        victim = replicas[kill % 2]
        victim.end(signal.SIGKILL)
        victim.start()
        time.sleep(0.3)
    time.sleep(2)
    draining.set()
    codes = []
    for drain in range(o.drains):
        time.sleep(chosen.uniform(0.05, 0.5))
        victim = replicas[drain % 2]
        codes.append(victim.end(signal.SIGTERM))
        victim.start()
        time.sleep(1.5)
    done.set()
    for thread in clients:
        thread.join()
    proxy.terminate()
    proxy.wait()
    for replica in replicas:
        replica.end(signal.SIGTERM)
    print(f"{o.proxy}: {o.kills} kills, {o.drains} drains with exit codes {sorted(set(codes))}; answers: {counts}")
    raise SystemExit(1 if counts["wrong"] or counts["right"] == 0 or any(codes) or counts["broken off while draining"] else 0)


if __name__ == "__main__":
    main()
