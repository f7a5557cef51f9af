"""One run of one program on one file: tokens per second of prefill, decode and of several sequences together."""
import json
import re
import statistics
import subprocess
import tempfile


def output_of(command, stderr=subprocess.PIPE):
    ran = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=stderr, text=True,
                         cwd=tempfile.gettempdir())  # some leave a log where they run
    if ran.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-300:]}")
    return ran.stdout


class Vitrine:
    """`vitrine bench`, with the weights in huge pages before it begins: the others have re-ordered or touched theirs by then, too."""

    def __init__(self, program):
        self.program = program

    def alone(self, file, prompt, decode, threads, repeat, depth=0, cache="f32"):
        """{work: [tokens per second of each repetition]}, behind `depth` positions of a cache of this type"""
        text = output_of([self.program, "bench", "--model", file, "--prompt", prompt, "--decode", decode, "--threads", threads,
                          "--repeat", repeat, "--depth", depth, "--cache-type-k", cache, "--cache-type-v", cache, "--load", "copy", "--json"])
        document = json.loads(text)
        rows = {"prefill" if row["work"].startswith("prefill") else "decode": row["runs"] for row in document["rows"]}
        return rows, document

    def together(self, file, sequences, threads, repeat):
        text = output_of([self.program, "bench", "--model", file, "--prompt", 16, "--decode", 32, "--sequences", sequences, "--threads",
                          threads, "--repeat", repeat, "--load", "copy", "--json"])
        return next(row["runs"] for row in json.loads(text)["rows"] if row["work"].startswith("decode"))


class Llama:
    """llama-bench and llama-batched-bench of llama.cpp or of what descends from it. ways: sets of options of both programs, the
    fastest of which counts for each kind of work."""

    def __init__(self, folder, ways):
        self.folder, self.ways = folder, ways

    def alone(self, file, prompt, decode, threads, repeat, depth=0, cache="f16"):
        best = {}
        behind = ["-d", depth, "-ctk", cache, "-ctv", cache] if depth else []
        for way, _ in self.ways:
            text = output_of([self.folder / "llama-bench", "-m", file, "-p", 0 if depth else prompt, "-n", decode, "-t", threads, "-r",
                              repeat, *way, *behind, "-o", "json"])
            for row in json.loads(text[text.index("["):]):
                work = "prefill" if row["n_gen"] == 0 else "decode"
                if work not in best or statistics.median(row["samples_ts"]) > statistics.median(best[work]):
                    best[work] = row["samples_ts"]
        return best, None

    def together(self, file, sequences, threads, repeat):
        best = []
        for _, way in self.ways:
            runs = []
            for _ in range(repeat):
                text = output_of([self.folder / "llama-batched-bench", "-m", file, "-t", threads, "-c", 64 * sequences, "-npp", 16, "-ntg",
                                  32, "-npl", sequences, *way], subprocess.STDOUT)
                line = [re.split(r"\s*\|\s*", row) for row in text.splitlines() if re.match(r"\|\s*\d", row)][-1]
                runs.append(float(line[8]))  # S_TG, tokens per second of all sequences
            if not best or statistics.median(runs) > statistics.median(best):
                best = runs
        return best
