"""A training run's metrics and configuration in an experiment tracker: python -m vitrine.track RUN --to mlflow. It needs mlflow or wandb."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from .errors import FileError, InputError, MissingFileError, RunError, UsageError

_MOST_IN_A_BATCH = 1000  # of MLflow
_LONGEST_VALUE = 6000  # of an MLflow parameter


def track(run: str | os.PathLike[str], to: str, *, out: str | os.PathLike[str] | None = None, project: str = "vitrine",
          name: str | None = None) -> int:
    """Carries what is new in a run folder of `vitrine train` into an offline store of a tracker. Returns the lines of metrics carried.

    run      the run's folder, with metrics.jsonl and config.yaml; the run may be finished or going on
    to       "mlflow" or "wandb"
    out      mlflow: a SQLite file (default mlflow.db) or a tracking URI; wandb: the folder in which it makes its folder `wandb` (default:
             the working directory)
    project  the experiment of MLflow, the project of wandb
    name     the run's name there; default: that of its folder

    Called again it adds only lines that came since, to the same run. Nested metrics, as those of layers, have names with slashes. Raises
    RunError if the tracker is not installed.
    """
    folder = os.path.realpath(os.fspath(run))
    carry = {"mlflow": _to_mlflow, "wandb": _to_wandb}.get(to)
    if carry is None:
        raise UsageError(f"to is {to!r}; expected mlflow or wandb")
    return carry(folder, None if out is None else os.fspath(out), project, name or os.path.basename(folder))


def _lines(folder: str) -> Iterator[tuple[int, dict[str, float]]]:
    """The step and the numbers of each complete line."""
    path = os.path.join(folder, "metrics.jsonl")
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return  # it is being written
                try:
                    entry = json.loads(line)
                    step = int(entry.pop("step"))
                except (ValueError, KeyError, AttributeError, TypeError) as error:
                    raise FileError(f"{path}:{number}: is not a line of metrics; expected a JSON object with a step. Is the folder that of a run?") from error
                yield step, dict(_numbers("", entry))
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: does not exist. Name the folder of a run of `vitrine train`, its key `out`") from error


def _numbers(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{prefix}/{key}" if prefix else key, item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield prefix, float(value)


def _config(folder: str) -> dict[str, Any]:
    """The configuration's keys, with dots between nested ones, as `--set` has them."""
    import yaml  # both trackers need it themselves

    path = os.path.join(folder, "config.yaml")
    try:
        with open(path, encoding="utf-8") as file:
            told = yaml.safe_load(file)
    except FileNotFoundError:
        return {}  # a run of an earlier version
    except yaml.YAMLError as error:
        raise FileError(f"{path}: {error}") from error

    def flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                yield from flat(f"{prefix}.{key}" if prefix else str(key), item)
        else:
            yield prefix, value

    return dict(flat("", told))


def _running(folder: str) -> bool:
    """Whether a process trains in the folder: it holds the folder's lock."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False


def _key(folder: str) -> str:
    """By which the run is found again."""
    return hashlib.sha256(folder.encode()).hexdigest()[:12]


def _to_mlflow(folder: str, out: str | None, project: str, name: str) -> int:
    try:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise RunError("mlflow is not installed: pip install mlflow, or vitrine[mlflow]") from error
    new = list(_lines(folder))
    out = out or "mlflow.db"
    client = MlflowClient(out if "://" in out else "sqlite:///" + os.path.abspath(out))
    found = client.get_experiment_by_name(project)
    experiment = found.experiment_id if found else client.create_experiment(project)
    runs = client.search_runs([experiment], f"tags.`vitrine.key` = '{_key(folder)}'", max_results=1)
    there = runs[0] if runs else client.create_run(experiment, run_name=name, tags={"vitrine.key": _key(folder), "vitrine.folder": folder})
    had = {**there.data.tags, **there.data.params}
    done = int(had.get("vitrine.step", -1))
    params = [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in _config(folder).items() if key not in had]
    for begin in range(0, len(params), 100):
        client.log_batch(there.info.run_id, params=params[begin:begin + 100])
    new = [(step, numbers) for step, numbers in new if step > done]
    written = int(os.path.getmtime(os.path.join(folder, "metrics.jsonl")) * 1000)
    metrics = [Metric(key, value, written, step) for step, numbers in new for key, value in numbers.items()]
    for begin in range(0, len(metrics), _MOST_IN_A_BATCH):
        client.log_batch(there.info.run_id, metrics=metrics[begin:begin + _MOST_IN_A_BATCH])
    if new:
        client.set_tag(there.info.run_id, "vitrine.step", str(new[-1][0]))
    if not _running(folder):
        client.set_terminated(there.info.run_id)
    return len(new)


def _to_wandb(folder: str, out: str | None, project: str, name: str) -> int:
    try:
        import wandb
    except ImportError as error:
        raise RunError("wandb is not installed: pip install wandb, or vitrine[wandb]") from error
    place = os.path.abspath(out or ".")
    key = _key(folder)
    state = os.path.join(place, "wandb", f"vitrine-{key}.json")
    done = -1
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            done = int(json.load(file)["step"])
    new = [(step, numbers) for step, numbers in _lines(folder) if step > done]
    if not new:
        return 0
    os.makedirs(os.path.dirname(state), exist_ok=True)
    run = wandb.init(mode="offline", dir=place, project=project, name=name, id=key, config=_config(folder),
                     settings=wandb.Settings(console="off", silent=True))
    for step, numbers in new:
        run.log(numbers, step=step)
    run.finish()
    unfinished = f"{state}.unfinished"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump({"folder": folder, "step": new[-1][0]}, file)
    os.replace(unfinished, state)
    return len(new)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vitrine.track", description=(track.__doc__ or "").split("\n")[0])
    parser.add_argument("run", metavar="RUN", help="the folder of a run of vitrine train")
    parser.add_argument("--to", required=True, choices=["mlflow", "wandb"], help="the tracker")
    parser.add_argument("--out", help="mlflow: a SQLite file (default mlflow.db) or a tracking URI; wandb: the folder of its folder `wandb`")
    parser.add_argument("--project", default="vitrine", help="the experiment of MLflow, the project of wandb; default: vitrine")
    parser.add_argument("--name", help="the run's name there; default: that of its folder")
    chosen = parser.parse_args()
    try:
        lines = track(chosen.run, chosen.to, out=chosen.out, project=chosen.project, name=chosen.name)
    except (InputError, RunError) as error:
        print(f"vitrine.track: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    print(f"{lines} new lines of metrics carried to {chosen.to}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
