"""Parquet as JSON lines, which `vitrine data` reads: python -m vitrine.parquet FILES --out LINES.jsonl.gz. It needs pyarrow."""

from __future__ import annotations

import argparse
import datetime
import glob
import gzip
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .errors import FileError, InputError, MissingFileError, RunError, UsageError

_SHARD = re.compile(r"(.*?)-?\d+(-of-\d+)?\.parquet")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def from_parquet(files: Paths, out: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> int:
    """Writes the rows of Parquet files as JSON lines, one object a row, for `vitrine data` (docs/token-data.md). Returns the rows.

    files    files, folders of them, or patterns such as "data/train-*.parquet"; shards are read in the order of their names. A folder
             must hold one split
    out      the file to write, replaced if it exists; compressed if its name ends in .gz
    columns  those to write, as the objects' keys; None: all

    A value that is null is left out. Rows are read as a stream. Raises RunError if pyarrow is not installed.
    """
    paths = [path for one in ([files] if isinstance(files, str | os.PathLike) else files) for path in _files(os.fspath(one))]
    if not paths:
        raise UsageError("no Parquet files: name at least one")
    target = os.fspath(out)
    unfinished = f"{target}.unfinished"
    rows = 0
    try:
        with (gzip.open if target.endswith(".gz") else open)(unfinished, "wt", encoding="utf-8") as lines:
            for path in paths:
                for row in _rows(path, columns):
                    lines.write(_line(row, path) + "\n")
                    rows += 1
        os.replace(unfinished, target)
    except OSError as error:
        raise RunError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
    return rows


def _files(path: str) -> list[str]:
    if os.path.isdir(path):
        found = sorted(name for name in os.listdir(path) if name.endswith(".parquet"))
        if not found:
            raise InputError(f"{path}: holds no .parquet files")
        splits = sorted({match[1] if (match := _SHARD.fullmatch(name)) else name.removesuffix(".parquet") for name in found})
        if len(splits) > 1:
            pattern = os.path.join(path, splits[-1] + "*.parquet")
            raise InputError(f"{path}: holds more than one split: {', '.join(splits)}. Name the files of one, such as '{pattern}'")
        return [os.path.join(path, name) for name in found]
    if os.path.exists(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise MissingFileError(f"{path}: does not exist")
    return found


def _rows(path: str, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise RunError("Parquet is read with pyarrow, which is not installed: pip install pyarrow") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            there = file.schema_arrow.names
            missing = [name for name in columns or [] if name not in there]
            if missing:
                raise InputError(f"{path}: has no column {missing[0]!r}; its columns are {', '.join(there)}")
            for batch in file.iter_batches(batch_size=1024, columns=None if columns is None else list(columns)):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise FileError(f"{path}: cannot be read as Parquet: {error}") from error


def _line(row: dict[str, Any], path: str) -> str:
    for column, value in row.items():
        row[column] = _json(value, f"{path}: column {column!r}")
    return json.dumps({column: value for column, value in row.items() if value is not None}, ensure_ascii=False)


def _json(value: Any, where: str) -> Any:
    """What JSON can hold, without the nulls that stand for fields which other rows have."""
    if isinstance(value, dict):
        return {key: _json(item, where) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_json(item, where) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise InputError(f"{where} holds {type(value).__name__}, which JSON cannot; name the columns to write (columns=, --columns)")


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vitrine.parquet", description=(from_parquet.__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILES", help="Parquet files, folders of them, or patterns")
    parser.add_argument("--out", required=True, help="the file of JSON lines; compressed if its name ends in .gz")
    parser.add_argument("--columns", help="those to write, separated by commas; default: all")
    chosen = parser.parse_args()
    try:
        rows = from_parquet(chosen.files, chosen.out, columns=chosen.columns.split(",") if chosen.columns else None)
    except (InputError, RunError) as error:
        print(f"vitrine.parquet: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    print(f"{rows} rows written to {chosen.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
