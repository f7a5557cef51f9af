"""The metrics of a training run as curves, while it goes on and afterwards."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .drawing import curves

_DRAWN = ("loss", "val_loss")


class TrainingCurves:
    """The metrics in the folder of a run, metrics.jsonl, read when they are asked for: also while the run goes on. A notebook shows
    the losses.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._read: tuple[object, list[dict[str, Any]]] = (None, [])  # the file's state, and its lines then

    def __repr__(self) -> str:
        steps = self.metrics
        if not steps:
            return f"<training run {self.folder}: {self._nothing()}>"
        last = {name: series[-1][1] for name, series in self._drawn().items()}
        return f"<training run {self.folder}: step {steps[-1]['step']}, {', '.join(f'{name} {y:.4g}' for name, y in last.items())}>"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, one for each step; without one that is being written. The file is read when it has changed."""
        path = self.folder / "metrics.jsonl"
        try:
            now = os.stat(path)
            state = (now.st_ino, now.st_size, now.st_mtime_ns)
            if state != self._read[0]:
                text = path.read_text(encoding="utf-8")
                lines = map(json.loads, text[: text.rfind("\n") + 1].splitlines())
                self._read = state, [line for line in lines if isinstance(line, dict) and "step" in line]
        except FileNotFoundError:
            return []
        return list(self._read[1])

    def __getitem__(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one number of the metrics: "loss", "val_loss", "lr"; empty if there is none."""
        return [(line["step"], line[name]) for line in self.metrics if isinstance(line.get(name), int | float)]

    def _drawn(self) -> dict[str, list[tuple[int, float]]]:
        return {name: series for name in _DRAWN if (series := self[name])}

    def _nothing(self) -> str:
        return "no step yet" if self.folder.is_dir() else "the folder does not exist yet"

    def _repr_html_(self) -> str:
        drawn = self._drawn()
        return curves(drawn, f"{self.folder.name}, by step" if drawn else f"{self.folder}: {self._nothing()}")


def folder_of(config: Any) -> str | None:
    """The folder that a configuration names, as far as it shows without a reader of YAML."""
    if isinstance(config, Mapping):
        named = config.get("out")
        return None if named is None else os.fspath(named)
    text = config if isinstance(config, str) and "\n" in config else ""
    if not text:
        try:
            text = Path(config).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None  # the program says what is wrong with it
    found = re.search(r"""^out:[ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|([^#\n]*?))[ \t]*(?:[ \t]#.*)?$""", text, re.MULTILINE)
    return next((part for part in found.groups() if part), None) if found else None


class LiveCurves:
    """Curves in the notebook that runs this, which grow with the run. Outside of notebooks nothing happens."""

    def __init__(self, folder: str | None) -> None:
        self._handle: Any = None
        self._curves = TrainingCurves(folder or "")
        self._size = -1
        shell = sys.modules.get("IPython")
        running = shell.get_ipython() if shell is not None else None
        if folder is None or getattr(running, "kernel", None) is None:
            return
        self._handle = importlib.import_module("IPython.display").display(self._curves, display_id=True)

    def update(self) -> None:
        """Draws again if a step was written since."""
        if self._handle is None:
            return
        try:
            size = os.stat(self._curves.folder / "metrics.jsonl").st_size
        except FileNotFoundError:
            return
        if size != self._size:
            self._size = size
            self._handle.update(self._curves)
