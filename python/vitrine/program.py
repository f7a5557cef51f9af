"""The program `vitrine` from Python: its commands run as a subprocess, with their options as keywords and their JSON as
result."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from .batches import Prompts
from .curves import LiveCurves, TrainingCurves, folder_of
from .documents import Document, Picture
from .errors import FileError, InputError, RunError, UsageError
from .opened import OpenedModel
from .rewards import served

_NO_JSON = ("completion", "manual")


def run(command: str, *words: str | os.PathLike[str], json: bool | None = None, **options: Any) -> Any:
    """Runs a command of the program: run("eval perplexity", file="text.txt", context=256). The result is its --json document as
    Python reads it, or its text where it has none or json is False.

    words    the positional arguments: names, paths, a prompt
    options  those of the command line (docs/command-line.md), _ for -: True sets a flag, None and False omit an option, a list
             repeats it

    Progress is written to sys.stderr. Ctrl-C is sent to the program, which ends as on the command line (`train` saves first).
    Raises InputError and RunError with the program's message.
    """
    document = not command.startswith(_NO_JSON) if json is None else json
    arguments = command.split() + [text for name, value in options.items() for text in _option(name, value)]
    arguments += ["--json"] if document else []
    return _run(command, arguments, words, document)


def _run(command: str, arguments: list[str], words: Sequence[Any], document: bool, between: Callable[[], None] | None = None) -> Any:
    """between: called now and then while the program runs."""
    text = _output(command, [*arguments, "--", *map(_word, words)] if words else arguments, between)
    found = _read(text) if document else text
    return Document(found) if isinstance(found, dict) else found


def train(
    config: str | os.PathLike[str] | Mapping[str, Any], *, resume: bool = False, set: Mapping[str, Any] | None = None,
    reward: Callable[..., Iterable[float]] | None = None,
) -> Any:
    """Trains a model, as `vitrine train` does (docs/training.md): a dict with the run's folder and its losses. In a notebook, curves
    of the losses grow while it runs; TrainingCurves shows those of any run.

    config  the path of a configuration; or the configuration, as YAML (text of more than one line) or as a dict. Paths in it are
            relative to the working directory
    resume  continue from the newest checkpoint; the result is bit-identical to an uninterrupted run
    set     values of single keys, by names with dots: {"optimizer.lr": 1e-3}
    reward  instead of grpo.reward: a function that is called once for each step with prompts, completions, finish_reason and the other
            keys of the prompts' lines as keywords, each a list with an entry for every answer, and returns a number for each answer. It
            runs in a thread of its own, and is given again with resume. If it raises, the run saves and ends with RunError, whose cause
            is that exception
    """
    with contextlib.ExitStack() as open_:
        path = open_.enter_context(written(config, "the configuration"))
        settings = dict(set or {})
        rewards = None
        if reward is not None:
            rewards = open_.enter_context(served(reward))
            settings["grpo.reward"] = rewards.command
        words = [f"{key}={json.dumps(value, default=plain)}" for key, value in settings.items()]
        live = LiveCurves(folder_of(config))
        try:
            return _run("train", ["train", *_option("resume", resume), *_option("set", words), "--json"], [path], True, live.update)
        except RunError as error:
            if rewards is not None and rewards.error is not None:
                raise error from rewards.error
            raise
        finally:
            live.update()


@contextmanager
def written(document: str | os.PathLike[str] | Mapping[str, Any], what: str) -> Iterator[str]:
    """The path of a document that may itself be given: YAML of more than one line, or a dict. what: its name in messages."""
    if isinstance(document, Mapping):
        try:
            text = json.dumps(document, default=plain)  # JSON is YAML
        except (TypeError, ValueError) as error:
            raise InputError(f"{what} holds what YAML has no word for: {error}") from error
    elif isinstance(document, str) and "\n" in document:
        text = document
    else:
        yield os.fspath(document)
        return
    with tempfile.TemporaryDirectory(prefix="vitrine-") as folder:
        path = os.path.join(folder, "configuration.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            yield path
        except InputError as error:
            kind = InputError if isinstance(error, FileError) else type(error)  # there is no file
            raise kind(str(error).replace(path, what)) from None


def where_it_lies(path: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """A file or folder by its absolute path, as the working directory may change; what is none (an id of the hub's cache) as it is."""
    return os.path.abspath(os.fsdecode(path)) if path is not None and os.path.exists(path) else path


def picture(
    model: OpenedModel, name: str, prompt: Prompts | None = None, *, out: str | os.PathLike[str] | None = None, layer: int | None = None,
    head: int | None = None, position: int | None = None, words: Sequence[str] | None = None, sum: str | None = None,
) -> Any:
    """One picture of the walk-through (docs/pictures.md; run("picture", list=True) lists them): its data as a dict, the picture
    itself in ["pictures"][name]. A notebook shows it; .svg is its text. out: a file that ends in .svg or .json, which is written instead.
    """
    options = {"out": out, "layer": layer, "head": head, "position": position, "sum": sum,
               "words": None if words is None else ",".join(words)}
    found = _command(model, "picture", [name], prompt, None if out is None else False, options)
    if not found:
        return None

    def draw() -> str:
        with tempfile.TemporaryDirectory(prefix="vitrine-") as folder:
            path = os.path.join(folder, "picture.svg")
            _command(model, "picture", [name], prompt, False, {**options, "out": path}, quiet=True)
            return Path(path).read_text(encoding="utf-8")

    return Picture(found, name, draw)


def explain(model: OpenedModel, prompt: Prompts | None, out: str | os.PathLike[str], *, gradients: bool = True) -> None:
    """Walks a prompt through the model, as one HTML page that opens without a network. gradients: include the steps that run the
    model backward."""
    _command(model, "explain", [], prompt, False, {"out": out, "no_gradients": not gradients})


def eval_perplexity(model: OpenedModel, file: str | os.PathLike[str], **options: Any) -> Any:
    """How well the model predicts a text (docs/evaluation.md). options: those of `vitrine eval perplexity`: context, stride, like,
    per_token, against, jsonl, key, no_special, out.
    """
    return _command(model, "eval perplexity", [], None, None, {"file": file, **options})


def eval_choices(model: OpenedModel, file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any) -> Any:
    """Multiple-choice questions by log-likelihood (docs/evaluation.md). options: those of `vitrine eval choices`: task, limit,
    show_items.
    """
    return _command(model, "eval choices", [], None, None, {"file": file, **options})


def eval_compare(model: OpenedModel, other: str | os.PathLike[str], file: str | os.PathLike[str], **options: Any) -> Any:
    """Compares another file of this model, such as a quantized one, with it on a text (docs/evaluation.md). options: those of
    `vitrine eval compare`: context, stride, jsonl, key, no_special.
    """
    return _command(model, "eval compare", [_word(other)], None, None, {"file": file, **options})


def _command(
    model: OpenedModel, command: str, words: list[str], prompt: Prompts | None, document: bool | None, options: dict[str, Any],
    quiet: bool = False,
) -> Any:
    if model._opened is None:
        raise UsageError(f"{command} opens a model's file, and this model is in memory alone; merge it with out= and load that")
    if model._session.edited:
        raise UsageError(f"{command} opens the model's file, and weights of this model were changed in memory; save() it and load that")
    model._without_hooks(command)
    if model._of_thread.saes:
        raise UsageError(f"{command} opens the model's file, and runs without autoencoders; call it outside of saes()")
    opened = {**model._opened, "threads": model._opened["threads"] or None, "cache_type_k": None, "cache_type_v": None}
    if isinstance(prompt, str) and prompt != "-":
        words = [*words, prompt]
    elif prompt is not None:
        options = {**options, "tokens": ",".join(str(token) for token in model._one(prompt))}
    with contextlib.redirect_stderr(io.StringIO()) if quiet else contextlib.nullcontext():
        return run(command, *words, json=document, **opened, **options)


def _option(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [text for one in value for text in _option(name, one)]
    return [f"{flag}={_word(value)}"]


def _word(value: Any) -> str:
    word = os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)
    if "\0" in word:
        raise InputError(f"{word!r} has a zero byte, which no argument can have")
    return word


def plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__}")


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RunError(f"the program wrote what is no JSON: {text[:200]!r}") from error


def program_path() -> str:
    """Where the program of this package is. Raises UsageError for an installation without it."""
    program = str(Path(__file__).with_name("vitrine"))
    if not os.path.isfile(program):
        raise UsageError(f"{program} is not there: this installation of the package has no program. `pip install .` builds it")
    return program


def _output(command: str, arguments: list[str], between: Callable[[], None] | None = None) -> str:
    """What the program writes to standard output."""
    program = program_path()
    try:
        # A session of its own, so that Ctrl-C of the terminal reaches it once, from here.
        child = subprocess.Popen([program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 encoding="utf-8", errors="replace", start_new_session=True)
    except OSError as error:
        raise RunError(f"{program} cannot be run: {error.strerror}") from error
    assert child.stdout is not None and child.stderr is not None
    said: list[str] = []
    listener = threading.Thread(target=_listen, args=(child.stderr, ("vitrine: ", f"vitrine {command}: "), said), daemon=True)
    listener.start()
    try:
        text = _until_end(child, child.stdout, between)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        listener.join()
        child.stdout.close()
        child.stderr.close()
    if child.returncode == 0:
        sys.stderr.write("".join(said))
        return text
    message = "".join(said).strip().removeprefix("vitrine: ").removeprefix(f"vitrine {command}: ")
    if child.returncode < 0:
        raise RunError(message or f"the program was ended by {signal.Signals(-child.returncode).name}")
    raise (InputError if child.returncode == 2 else RunError)(_in_words_of_python(message))


def _until_end(child: subprocess.Popen[str], stdout: IO[str], between: Callable[[], None] | None) -> str:
    """Reads until the program ends. Ctrl-C goes to the program first, and is raised when it has ended; a second one ends it at once."""
    pieces: list[str] = []
    reader = threading.Thread(target=lambda: pieces.append(stdout.read()), daemon=True)
    reader.start()
    interrupted: KeyboardInterrupt | None = None
    while reader.is_alive() or child.poll() is None:
        try:
            reader.join(0.1)
            if between is not None:
                between()
            if not reader.is_alive():
                child.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt as error:
            interrupted = error
            child.send_signal(signal.SIGINT)
    if interrupted is not None:
        raise interrupted
    return "".join(pieces)


def _listen(stderr: IO[str], marks: tuple[str, ...], said: list[str]) -> None:
    """Passes the program's lines on, and keeps its last message, which begins with its name and may go on for lines."""
    for line in stderr:
        if said or line.startswith(marks):
            said.append(line)
        else:
            sys.stderr.write(line)
            sys.stderr.flush()


def _in_words_of_python(message: str) -> str:
    """--like-this as like_this=, outside of commands in backticks."""
    def keyword(option: re.Match[str]) -> str:
        return option[1].replace("-", "_") + "="

    parts = message.split("`")
    parts[::2] = [re.sub(r"(?<![\w-])--([a-z][a-z-]*)(?:=| (?=\d))?", keyword, part) for part in parts[::2]]
    return "`".join(parts)
