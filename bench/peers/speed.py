"""One run of one program on one file: tokens per second of prefill, decode and of several sequences together."""
import json
import re
import subprocess


def output_of(command):
    ran = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-300:]}")
    return ran.stdout


class Vitrine:
    """`vitrine bench`."""

    def __init__(self, program):
        self.program = program

    def alone(self, file, prompt, decode, threads, repeat):
        """{work: [tokens per second of each repetition]}"""
        text = output_of([self.program, "bench", "--model", file, "--prompt", prompt, "--decode", decode, "--threads", threads,
                          "--repeat", repeat, "--json"])
        document = json.loads(text)
        rows = {"prefill" if row["work"].startswith("prefill") else "decode": row["runs"] for row in document["rows"]}
        return rows, document

    def together(self, file, sequences, threads, repeat):
        text = output_of([self.program, "bench", "--model", file, "--prompt", 16, "--decode", 32, "--sequences", sequences, "--threads",
                          threads, "--repeat", repeat, "--json"])
        return next(row["runs"] for row in json.loads(text)["rows"] if row["work"].startswith("decode"))


class Llama:
    """llama-bench and llama-batched-bench of llama.cpp or of what descends from it. options: what makes it fastest."""

    def __init__(self, folder, options=()):
        self.folder, self.options = folder, list(options)

    def alone(self, file, prompt, decode, threads, repeat):
        text = output_of([self.folder / "llama-bench", "-m", file, "-p", prompt, "-n", decode, "-t", threads, "-r", repeat, "-fa", 1,
                          *self.options, "-o", "json"])
        rows = json.loads(text[text.index("["):])
        return {"prefill" if row["n_gen"] == 0 else "decode": row["samples_ts"] for row in rows}, None

    def together(self, file, sequences, threads, repeat):
        runs = []
        for _ in range(repeat):
            text = output_of([self.folder / "llama-batched-bench", "-m", file, "-t", threads, "-fa", *(["1"] if not self.options else []),
                              "-c", 64 * sequences, "-npp", 16, "-ntg", 32, "-npl", sequences, *self.options])
            line = [re.split(r"\s*\|\s*", row) for row in text.splitlines() if re.match(r"\|\s*\d", row)][-1]
            runs.append(float(line[8]))  # S_TG, tokens per second of all sequences
        return runs
