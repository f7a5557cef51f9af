#!/usr/bin/env python3
"""Interrupts downloads at random moments, resumes them and compares every byte.

usage: interrupt_pulls.py [--program build/release/vitrine] [--kills 50] [--seed 1] [--megabytes 24]

tests/app/hub/hub_server.py plays the hub, slowly. `vitrine pull` is killed (SIGKILL) at a random moment, or some of its connections are
closed in the middle of an answer, or both; then the same command goes on, until the model is there. After every kill nothing but whole
contents with the right hash may have a final name. In the end the files must be those of the hub, and
nothing is left beside them. Exits with 1 if anything of this fails.
"""
import argparse, hashlib, json, os, pathlib, random, shutil, signal, subprocess, sys, tempfile, time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
COMMIT, MODEL = "0123456789abcdef0123456789abcdef01234567", "ada/model"


def fill(folder, megabytes, seed):
    noise = random.Random(seed)
    top = folder / "repos" / MODEL
    (top / COMMIT).mkdir(parents=True)
    (top / "refs").mkdir()
    (top / "refs/main").write_text(COMMIT)
    shards = {f"model-0000{i}-of-00003.safetensors": noise.randbytes(megabytes * 1000000 // 3 + i) for i in (1, 2, 3)}
    files = shards | {"config.json": b"{}", "tokenizer.json": noise.randbytes(50000),
                      "model.safetensors.index.json": json.dumps({"weight_map": {f"tensor{i}": name for i, name in enumerate(shards)}}).encode()}
    for name, content in files.items():
        (top / COMMIT / name).write_bytes(content)
    return files


def check_names(cache, files):
    """After a kill: every blob is whole, a link points at one, and no ref names a half snapshot."""
    folder = cache / "models--ada--model"
    for blob in (folder / "blobs").glob("*"):
        if blob.suffix == ".incomplete":
            continue
        content = blob.read_bytes()
        digest = hashlib.sha256(content) if len(blob.name) == 64 else hashlib.sha1(b"blob %d\0" % len(content) + content)
        assert digest.hexdigest() == blob.name, f"{blob} holds something else"
    snapshot = folder / "snapshots" / COMMIT
    for name in files:
        if (snapshot / name).is_symlink():
            assert (snapshot / name).read_bytes() == files[name], name
    if (folder / "refs/main").exists() or (snapshot / "config.json").is_symlink():
        assert all((snapshot / name).is_file() for name in files), "a half model has its names"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(SOURCE / "build/release/vitrine"))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=24)
    o = parser.parse_args()
    chance = random.Random(o.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vitrine-pulls-"))
    server = subprocess.Popen([sys.executable, SOURCE / "tests/app/hub/hub_server.py", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().split()[0]
        files = fill(folder, o.megabytes, o.seed)
        size = sum(map(len, files.values()))
        rate = 2000000  # of each connection
        cache = folder / "cache"
        environment = os.environ | {"HF_ENDPOINT": f"https://localhost:{port}", "SSL_CERT_FILE": str(folder / "cert.pem"), "HF_HUB_CACHE": str(cache), "HF_HOME": str(folder)}
        kills = drops = runs = sent = 0
        began = time.monotonic()
        while kills < o.kills:
            shutil.rmtree(cache, ignore_errors=True)
            while True:  # until the model is there
                broken = chance.randrange(0, 4)
                plan = {"rate": rate, "drops": [{"path": "/store/", "after": chance.randrange(1, 2000000), "times": 1} for _ in range(broken)]}
                (folder / "plan.json").write_text(json.dumps(plan))
                killed = kills < o.kills and chance.random() < 0.8
                pull = subprocess.Popen([o.program, "pull", MODEL, "--connections", str(chance.choice((1, 3, 8))), "--json"], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
                runs += 1
                if killed:
                    try:
                        pull.wait(chance.uniform(0.02, 2.5))
                    except subprocess.TimeoutExpired:
                        pull.send_signal(signal.SIGKILL)
                out, err = pull.communicate()
                if pull.returncode == -signal.SIGKILL:
                    kills += 1
                    check_names(cache, files)
                    continue
                assert pull.returncode == 0, f"exit code {pull.returncode}: {err}"
                drops += broken  # in a run that came to its end all of them happened
                break
            check_names(cache, files)
            snapshot = pathlib.Path(json.loads(out)["path"])
            assert {p.name: p.read_bytes() for p in snapshot.iterdir()} == files, "the files differ"
            assert not list(cache.rglob("*.incomplete")) and not list(cache.rglob("*.tmp*")), "something was left behind"
            sent += size
        print(f"{kills} kills and {drops} dropped connections in {runs} runs of `vitrine pull`: every file equal, {sent / 1e6:.0f} MB, {time.monotonic() - began:.0f} s")
    finally:
        server.stdin.close()
        server.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
