#!/usr/bin/env python3
"""Compares what two builds of `vitrine serve` answer to the same requests.

usage: compare_answers.py OLD_PROGRAM NEW_PROGRAM [--renamed OLD=NEW ...] [--added NAME ...] [--list]

The requests are made from the first program's own OpenAPI document: for every endpoint a valid request, then for every field
valid values, values at and beyond its range, values of wrong types, and null (of the endpoints that only generate every fourth);
unknown fields, a body that is not an object, one that is not JSON, and an empty one. The requests of FURTHER come before them.
Both servers run the shipped model with --exact and answer one request at a time. Status, content type and body are compared;
times, random ids and dates are left out. --renamed tells a field of answers that has another name in the new build, --added one that only its answers have.

The exit status is 1 if an answer differs. Needs Python 3.10 or later, nothing else.
"""
import argparse
import http.client
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = [2, 2165, 374, 650, 264, 614]
MESSAGES = [{"role": "user", "content": "There was once a king"}]
EDITS = [{"head": "1.2", "positions": [-1], "do": "zero"}]

# A valid request of each endpoint; fields are added to it one at a time.
VALID = {
    "/v1/completions": {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "seed": 1},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 4, "temperature": 0, "seed": 1},
    "/v1/chat/completions/input_tokens": {"messages": MESSAGES},
    "/v1/embeddings": {"input": "a king"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 4, "temperature": 0},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/v1/responses": {"input": "a king", "max_output_tokens": 4, "temperature": 0, "seed": 1},
    "/completion": {"prompt": PROMPT, "n_predict": 4, "temperature": 0, "seed": 1},
    "/tokenize": {"content": "a king"},
    "/detokenize": {"tokens": PROMPT},
    "/apply-template": {"messages": MESSAGES},
    "/v1/inspect": {"prompt": PROMPT, "hooks": ["blocks.1.attn.hook_z[heads=1,positions=-1]"]},
    "/v1/lens": {"prompt": PROMPT, "positions": [-1], "top": 2},
    "/v1/heads": {"prompt": PROMPT},
    "/v1/attribute": {"prompt": PROMPT, "steps": 2},
    "/v1/score": {"prompt": PROMPT},
    "/v1/patch": {"prompt": {"tokens": PROMPT}, "interventions": EDITS},
    "/v1/steer": {"prompt": PROMPT, "max_tokens": 4, "seed": 1, "edits": EDITS},
    "/v1/pictures/{name}": {"prompt": PROMPT},
}
LIVE = {
    "next": {"prompt": PROMPT, "top": 3},
    "generate": {"prompt": PROMPT, "max_tokens": 4},
    "inspect": {"prompt": PROMPT, "hooks": ["blocks.0.hook_resid_pre[positions=-1]"]},
    "units": {"prompt": PROMPT, "units": 2, "top": 2},
    "patch": {"prompt": {"tokens": PROMPT}, "interventions": EDITS, "top": 3},
    "document": {"prompt": PROMPT, "pictures": ["next-tokens"]},
    "train": {"prompt": "a king", "target": " was", "top": 3},
}
FURTHER = [
    ("/v1/inspect", {"prompt": "a king", "hooks": "pattern[layer=0,heads=0]", "edits": EDITS}),
    ("/v1/inspect", {"messages": MESSAGES, "hooks": ["hook_embed[positions=0]"]}),
    ("/v1/inspect", {"prompt": PROMPT, "hooks": ["no_such_hook"]}),
    ("/v1/inspect", {"prompt": PROMPT, "hooks": ["blocks.*"], "format": "safetensors"}),
    ("/v1/inspect", {"prompt": PROMPT * 40, "hooks": ["hook_logits"]}),
    ("/v1/lens", {"prompt": "a king", "top": 3}),
    ("/v1/lens", {"prompt": PROMPT, "positions": [99]}),
    ("/v1/heads", {"prompt": "a king", "token": " was", "against": " had"}),
    ("/v1/heads", {"prompt": PROMPT, "against": 7}),
    ("/v1/heads", {"prompt": PROMPT, "token": 9999999}),
    ("/v1/attribute", {"prompt": "a king", "steps": 0, "token": " was", "against": " had", "baseline": "zero"}),
    ("/v1/attribute", {"prompt": PROMPT, "baseline": "other"}),
    ("/v1/score", {"prompt": ["a king", "a queen"]}),
    ("/v1/score", {"prompt": ["a king", ""]}),
    ("/v1/patch", {"prompt": {"tokens": PROMPT}, "interventions": EDITS, "all_positions": True, "top": 2}),
    ("/v1/patch", {"prompt": {"tokens": PROMPT}, "interventions": [{"head": "99.1", "do": "zero"}]}),
    ("/v1/patch", {"prompt": {"tokens": PROMPT}, "interventions": [{"mlp": 0, "do": {"add": {"file": "/etc/passwd"}}}]}),
    ("/v1/patch", {"prompt": {"text": "a king"}, "patch": {"what": "resid_pre"}, "corrupt": {"text": "a queen"}}),
    ("/v1/steer", {"prompt": "a king", "max_tokens": 3, "seed": 1, "edits": []}),
    ("/v1/completions", {"prompt": "a king", "max_tokens": 6, "temperature": 0.8, "seed": 7, "logprobs": 3, "n": 2}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "echo": True, "temperature": 0}),
    ("/v1/completions", {"prompt": "a king", "max_tokens": 6, "stop": ["e"], "temperature": 0}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 6, "seed": 3, "logprobs": True, "top_logprobs": 2}),
    ("/v1/live/none", {"prompt": PROMPT}),
    ("/v1/live/next", {"prompt": "a king", "temperature": 0.7, "top_k": 5, "edits": EDITS}),
    ("/v1/live/generate", {"prompt": "a king", "temperature": 0.7, "seed": 5, "max_tokens": 8, "edits": EDITS}),
    ("/v1/live/patch", {"prompt": {"tokens": PROMPT}, "interventions": [{"head": 1.1, "do": "zero"}]}),
    ("/v1/live/document", {"prompt": PROMPT, "pictures": ["no-such-picture"]}),
    ("/v1/live/document", {"prompt": "a king", "gradients": False, "layer": 1, "head": 1}),
    ("/v1/pictures/logit-lens", {"prompt": "a king", "format": "svg"}),
    ("/v1/pictures/nothing", {"prompt": "a king"}),
]
GET = ["/health", "/v1/models", "/v1/models/tales9m", "/v1/models/none", "/tokenizer_info", "/v1/model", "/v1/pictures",
       "/lora-adapters", "/v1/live", "/nowhere", "/v1/inspect", "/props", "/openapi.json"]

LEFT_OUT = {"id", "created", "created_at", "completed_at", "timings", "latency", "system_fingerprint", "request_id", "load_ms", "seconds"}


def values_of(schema):
    """Values for a field by its schema: some valid ones, and some that are not."""
    if "enum" in schema:
        return [schema["enum"][0], "x", True]
    values = [None]
    for kind in schema.get("anyOf", [schema]):
        match kind.get("type"):
            case "boolean":
                values += [True, False]
            case "integer" | "number":
                low, high = kind.get("minimum"), kind.get("maximum")
                values += [1 if low is None or low <= 1 else low]
                values += [] if low is None else [low, low - 1]
                values += [] if high is None else [high + 1]
                values += [1.5, "1"]
            case "string":
                values += ["a", ""]
            case "array":
                values += [[], [1], ["a"], [{}]]
            case "object":
                values += [{}, {"a": 1}]
    if "type" not in schema and "anyOf" not in schema:
        values += [1, "a", {}]  # an ignored field
    values += [{"unexpected": []}, -0.5]
    return values


def requests_of(document):
    listed = []
    for path, methods in document["paths"].items():
        body = methods.get("post", {}).get("requestBody")
        names = [("/v1/live/" + name, LIVE[name]) for name in LIVE] if path == "/v1/live/{request}" else [
            (path.replace("{name}", "next-tokens"), VALID.get(path))]
        if body is None or names[0][1] is None:
            continue
        inside = any(name in path for name in ("inspect", "lens", "heads", "attribute", "score", "patch", "steer", "pictures", "live"))
        properties = body["content"]["application/json"]["schema"].get("properties", {})
        for name, valid in names:
            listed.append((name, valid))
            listed += [(name, valid | {"no_such_field": 1}), (name, [valid]), (name, b"{"), (name, b""), (name, {})]
            for field, schema in properties.items():
                if field in ("stream", "seed"):  # a seed that is null is a random one
                    continue
                listed += [(name, valid | {field: value}) for value in values_of(schema)][:: 1 if inside else 4]
    return [("GET", path, None) for path in GET] + [("POST", path, body) for path, body in FURTHER + listed]


class Server:
    def __init__(self, program):
        model = ROOT / "models" / "tales9m"
        self.process = subprocess.Popen(
            [program, "serve", "--model", model, "--name", "tales9m", "--port", "0", "--exact", "--parallel", "1", "--threads", "1",
             "--template", ROOT / "examples/plain-chat.jinja"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        told = ""
        while (found := re.search(r"http://127\.0\.0\.1:(\d+)", told)) is None:
            line = self.process.stderr.readline()
            if line == "":
                raise SystemExit(f"{program} serve did not start: {told}")
            told += line
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=120)
        # Whatever it logs later must not fill the pipe.
        subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def ask(self, method, path, body):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        while True:
            self.connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            told = answer.status, answer.getheader("Content-Type"), answer.read()
            if told[0] != 429:  # the step of training before this one has not ended
                return told

    def close(self):
        self.process.terminate()
        self.process.wait()


def told(answer, renamed):
    status, kind, body = answer
    if kind is None or "json" not in kind:
        return status, kind, body

    def cleaned(value):
        if isinstance(value, dict):
            return {renamed.get(key, key): cleaned(item) for key, item in value.items() if key not in LEFT_OUT}
        if isinstance(value, list):
            return [cleaned(item) for item in value]
        return value

    return status, kind, cleaned(json.loads(body))


def difference(old, new):
    at = next((i for i, (a, b) in enumerate(zip(old[2], new[2])) if a != b), min(len(old[2]), len(new[2])))
    around = slice(max(0, at - 60), at + 100)
    return f"old {old[0]} …{old[2][around]!r}\n  new {new[0]} …{new[2][around]!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--added", action="append", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print every request with its status")
    options = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in options.renamed)
    LEFT_OUT.update(options.added)
    servers = [Server(options.old), Server(options.new)]
    try:
        requests = requests_of(json.loads(servers[0].ask("GET", "/openapi.json", None)[2]))
        differ, by_status = [], {}
        for request in requests:
            old, new = (server.ask(*request) for server in servers)
            by_status[old[0]] = by_status.get(old[0], 0) + 1
            if options.list:
                print(old[0], request[0], request[1], str(request[2])[:200])
            if told(old, renamed) != told(new, {}):
                differ.append(request)
                print(f"DIFFERENT {request[0]} {request[1]} {str(request[2])[:300]}\n  {difference(old, new)}")
    finally:
        for server in servers:
            server.close()
    counts = ", ".join(f"{count} with {status}" for status, count in sorted(by_status.items()))
    print(f"{len(requests)} requests ({counts}); {len(differ)} answers differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
