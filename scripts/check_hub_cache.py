#!/usr/bin/env python3
"""Checks that `vitrine pull` and huggingface_hub read what the other put into the cache, against the tests' own hub.

usage: check_hub_cache.py [--program build/release/vitrine]

Needs huggingface_hub and openssl, and no network: tests/app/hub/hub_server.py plays the hub. Exits with 1 if something differs, and with 77
where huggingface_hub is missing.
"""
import argparse, json, os, pathlib, random, shutil, subprocess, sys, tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL, GGUF = "ada/llama", "ada/llama-GGUF"


def fill(folder):
    """A repository of a small golden model, and one of GGUF files."""
    golden = SOURCE / "tests/golden"
    for repo, files in ((MODEL, {p.name: p for p in (golden / "models/llama/model").iterdir()}),
                        (GGUF, {"llama-Q8_0.gguf": golden / "gguf/llama_q8_0.gguf", "deep/er/README.md": SOURCE / "README.md"})):
        top = folder / "repos" / repo
        (top / "refs").mkdir(parents=True)
        (top / "refs/main").write_text(COMMIT)
        for name, path in files.items():
            (top / COMMIT / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, top / COMMIT / name)


def layout(cache):
    """Every file and link of the blobs, refs and snapshots, with what it holds or points at."""
    found = {}
    for path in sorted(cache.rglob("*")):
        name = str(path.relative_to(cache))
        if name.startswith("models--") and name.split("/")[1:2] and name.split("/")[1] in ("blobs", "refs", "snapshots") and not path.is_dir():
            found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(SOURCE / "build/release/vitrine"))
    program = os.path.abspath(parser.parse_args().program)
    try:
        import importlib.util
        if importlib.util.find_spec("huggingface_hub") is None:
            raise ImportError
    except ImportError:
        print("hub cache: not run (huggingface_hub is not installed)", file=sys.stderr)
        sys.exit(77)

    folder = pathlib.Path(tempfile.mkdtemp(prefix="vitrine-hub-"))
    server = subprocess.Popen([sys.executable, SOURCE / "tests/app/hub/hub_server.py", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().split()[0]
        fill(folder)
        ours, theirs = folder / "ours", folder / "theirs"
        for name in [n for n in os.environ if n.startswith("HF_") or n.endswith("_CA_BUNDLE")]:
            del os.environ[name]
        os.environ |= {"HF_ENDPOINT": f"https://localhost:{port}", "SSL_CERT_FILE": str(folder / "cert.pem"), "REQUESTS_CA_BUNDLE": str(folder / "cert.pem"), "HF_HUB_CACHE": str(theirs), "HF_HOME": str(folder / "home"),
                       "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}

        def vitrine(cache, *words):
            done = subprocess.run([program, *words], env=os.environ | {"HF_HUB_CACHE": str(cache)}, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"vitrine {' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
            return done.stdout

        def contents_asked():
            """Requests for contents since the last call."""
            log = folder / "requests.jsonl"
            lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
            log.unlink(missing_ok=True)
            return sum(line["method"] == "GET" and not line["path"].startswith("/api/") for line in lines)

        import huggingface_hub as hub

        # Ours is found by huggingface_hub, offline and online, and nothing is fetched again.
        names = [f["name"] for f in json.loads(vitrine(ours, "pull", MODEL, "--json"))["files"]]
        gguf = json.loads(vitrine(ours, "pull", GGUF, "--json"))
        vitrine(ours, "pull", f"{GGUF}:deep/er/README.md")
        contents_asked()
        for name in names:
            local = hub.hf_hub_download(MODEL, name, cache_dir=ours, local_files_only=True)
            assert pathlib.Path(local).read_bytes() == (folder / "repos" / MODEL / COMMIT / name).read_bytes(), name
            assert hub.try_to_load_from_cache(MODEL, name, cache_dir=ours) == local, name
            assert hub.hf_hub_download(MODEL, name, cache_dir=ours) == local, name
        assert hub.snapshot_download(MODEL, cache_dir=ours, local_files_only=True) == str(ours / "models--ada--llama/snapshots" / COMMIT)
        assert hub.hf_hub_download(GGUF, "llama-Q8_0.gguf", cache_dir=ours, local_files_only=True) == gguf["path"]
        assert hub.hf_hub_download(GGUF, "deep/er/README.md", cache_dir=ours, local_files_only=True)
        assert contents_asked() == 0, "huggingface_hub fetched contents that were there"
        scan = hub.scan_cache_dir(ours)
        assert not scan.warnings and {repo.repo_id for repo in scan.repos} == {MODEL, GGUF}, scan
        assert {ref for repo in scan.repos for ref in repo.refs} == {"main"}, scan

        # The other way round: the same files and links, and vitrine fetches nothing.
        for name in names:
            hub.hf_hub_download(MODEL, name, cache_dir=theirs)
        hub.snapshot_download(GGUF, cache_dir=theirs)
        contents_asked()
        for name in (MODEL, f"{GGUF}:Q8_0", f"{GGUF}:llama-Q8_0.gguf"):
            assert json.loads(vitrine(theirs, "pull", name, "--json"))["bytes_fetched"] == 0, name
        assert contents_asked() == 0, "vitrine fetched contents that were there"
        assert layout(ours) == layout(theirs), sorted(set(layout(ours).items()) ^ set(layout(theirs).items()))
        for cache in (ours, theirs):
            for name in (MODEL, GGUF, f"{GGUF}:q8_0"):
                assert json.loads(vitrine(cache, "info", "--model", name, "--json"))["family"] == "llama", name

        # A content that we left unfinished, and one that a version of huggingface_hub before 1.0 did.
        blob = (ours / "models--ada--llama/snapshots" / COMMIT / "model.safetensors").resolve()
        content = blob.read_bytes()
        blob.rename(f"{blob}.incomplete")
        (ours / "models--ada--llama/snapshots" / COMMIT / "model.safetensors").unlink()
        os.truncate(f"{blob}.incomplete", random.randrange(1, len(content)))
        local = hub.hf_hub_download(MODEL, "model.safetensors", cache_dir=ours)
        assert pathlib.Path(local).read_bytes() == content and blob.read_bytes() == content
        blob = (theirs / "models--ada--llama/snapshots" / COMMIT / "model.safetensors").resolve()
        content = blob.read_bytes()
        blob.rename(f"{blob}.incomplete")
        os.truncate(f"{blob}.incomplete", random.randrange(1, len(content)))
        result = json.loads(vitrine(theirs, "pull", MODEL, "--json"))
        assert 0 < result["bytes_fetched"] < len(content) and blob.read_bytes() == content, result
        print(f"hub cache: vitrine and huggingface_hub {hub.__version__} agree on {len(layout(ours))} files and links")
    finally:
        server.stdin.close()
        server.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
