#!/usr/bin/env python3
"""llama.cpp's own tests of its server, run against `vitrine serve`.

usage: llama_server_tests.py LLAMA_CPP [FILE ...] --model MODEL [--vitrine build/release/vitrine] [--port 8080] [--select WORDS]
                             [--report RESULTS.json]
needs: pip install pytest requests openai filelock wget prometheus-client aiohttp numpy

LLAMA_CPP is a folder of llama.cpp's sources; its tests lie in tools/server/tests and stay as they are. MODEL stands in for
stories260K, which most of them run: that checkpoint as a Hugging Face directory or a GGUF file. Other models of theirs (BERT for
embeddings, a Gemma that sees) are not there: their tests run on MODEL too. FILE: basic, completion, ...; without any, all of FILES.

The script is also the pytest plugin that starts `vitrine serve` where their utils.py starts llama-server, with the options that mean
the same. Options without a counterpart (sampling defaults of the server, pooling, context shift, tools, several models) are left out.
Prints for each file what passed, failed and was skipped, and each failure with the line that failed. Tests that they mark as slow
need models of gigabytes and are left out.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FILES = ("basic", "completion", "chat_completion", "tokenize", "embedding", "security", "stream", "template", "ignore_eos",
         "compat_anthropic", "compat_oai_responses", "metrics")
# llama-server's template for a model that has none, with tools in the way Hermes's models read them.
CHATML = """{{ bos_token }}{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one as <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
NAMED_TEMPLATES = {"llama3": "meta-llama-Llama-3.1-8B-Instruct", "command-r": "CohereForAI-c4ai-command-r-plus-tool_use"}


# The plugin: pytest imports this file by its name.
def template_file(server, folder):
    """The chat template of their server's options as a file."""
    if server.chat_template_file:
        return server.chat_template_file
    named = NAMED_TEMPLATES.get(server.chat_template)
    if named:
        return f"../../../models/templates/{named}.jinja"
    file = pathlib.Path(folder) / "template.jinja"
    file.write_text(CHATML if server.chat_template in (None, "chatml") else server.chat_template)
    return str(file)


def options_of(server, folder):
    """The options of `vitrine serve` for the attributes of their ServerProcess."""
    names = (server.model_alias or "model").split(",")
    options = ["--port", server.server_port, "--host", server.server_host, "--model", os.environ["TESTED_MODEL"], "--name", names[0],
               "--any-model", "--template", template_file(server, folder)]
    for name in names[1:]:
        options += ["--alias", name]
    slots = server.n_slots or 4
    options += ["--parallel", slots]
    if server.n_ctx:
        own = server.n_ctx if server.kv_unified else server.n_ctx // slots
        options += ["--context", min(own, int(os.environ["TESTED_CONTEXT"]))]
    if server.n_threads:
        options += ["--threads", server.n_threads]
    if server.n_batch:
        options += ["--prefill-rows", server.n_batch]
    if not server.server_slots:
        options.append("--no-slots")
    if not server.server_metrics:
        options.append("--no-metrics")
    if server.api_key:
        options += ["--api-key", server.api_key]
    if server.no_ui:
        options.append("--no-page")
    # llama-server lets templates think unless told otherwise; here they do what their own text says.
    options += ["--chat-template-kwargs", json.dumps({"enable_thinking": server.reasoning != "off"})]
    options += ["--cors-origin", server.cors_origins or "*"]  # llama-server lets all sites ask unless told otherwise
    return [str(option) for option in options]


def start(server, timeout_seconds=60):
    import requests
    import utils
    folder = tempfile.mkdtemp(dir=os.environ["TESTED_FOLDER"])
    log = open(pathlib.Path(folder) / "log", "w")
    server.process = subprocess.Popen([os.environ["TESTED_PROGRAM"], "serve", *options_of(server, folder)], stdout=log, stderr=log)
    utils.server_instances.add(server)
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise RuntimeError(f"vitrine serve ended with {server.process.returncode}: {(pathlib.Path(folder) / 'log').read_text()}")
        try:
            if requests.get(server.make_url("/health"), timeout=5).status_code == 200:
                server.ready = True
                return
        except requests.RequestException:
            time.sleep(0.02)
    raise TimeoutError("vitrine serve did not start")


def pytest_configure(config):
    import utils
    utils.ServerProcess.start = start
    utils.ServerPreset.load_all = staticmethod(lambda: None)  # it downloads their models


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    why = ""
    if report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message.splitlines()[0] if crash else str(report.longrepr).splitlines()[-1]
        lines = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith(">")]
        why = (lines[-1] + " | " if lines else "") + why
    with open(os.environ["TESTED_RESULTS"], "a") as out:
        out.write(json.dumps({"test": report.nodeid, "outcome": report.outcome, "why": why}) + "\n")


# The program.
def context_of(model):
    config = pathlib.Path(model) / "config.json"
    return json.loads(config.read_text())["max_position_embeddings"] if config.is_file() else 512


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama_cpp", type=pathlib.Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--vitrine", default="build/release/vitrine", type=pathlib.Path)
    parser.add_argument("--port", default=8080, type=int)
    parser.add_argument("--report", type=pathlib.Path, help="each test with its outcome, as JSON")
    parser.add_argument("--select", default="", help="as pytest -k")
    o = parser.parse_args()
    tests = o.llama_cpp / "tools/server/tests"
    if not (tests / "utils.py").is_file():
        raise SystemExit(f"{tests}/utils.py is not there; expected a folder of llama.cpp's sources")
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results"
        results.touch()
        here = pathlib.Path(__file__).resolve()
        environment = {**os.environ, "PYTHONPATH": f"{here.parent}:{tests.resolve()}", "PYTHONDONTWRITEBYTECODE": "1", "PORT": str(o.port),
                       "TESTED_PROGRAM": str(o.vitrine.resolve()), "TESTED_MODEL": str(o.model.resolve()), "TESTED_FOLDER": folder,
                       "TESTED_RESULTS": str(results), "TESTED_CONTEXT": str(context_of(o.model))}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", here.stem, "-m", "not slow", "--tb=long", "--no-header"]
        command += ["-k", o.select] if o.select else []
        command += [f"unit/test_{name}.py" for name in o.files]
        done = subprocess.run(command, cwd=tests, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        reports = [json.loads(line) for line in results.read_text().splitlines()]
    if not reports:
        raise SystemExit(done.stdout)
    if o.report:
        o.report.write_text(json.dumps(reports, indent=1) + "\n")
    for name in o.files:
        own = [r for r in reports if r["test"].startswith(f"unit/test_{name}.py::")]
        counts = {outcome: sum(r["outcome"] == outcome for r in own) for outcome in ("passed", "failed", "skipped")}
        print(f"{name}: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items()))
        for r in own:
            if r["outcome"] == "failed":
                print(f"  {r['test'].split('::')[1]}\n    {r['why'][:300]}")


if __name__ == "__main__":
    main()
