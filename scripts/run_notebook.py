#!/usr/bin/env python3
"""Runs the code of a Jupyter notebook without Jupyter, and compares what it prints with the outputs stored in it.

usage: run_notebook.py NOTEBOOK.ipynb... [--write]

Cells run in order, in one namespace, in the notebook's folder. The value of a cell's last line is shown as Jupyter shows it, by _repr_svg_,
_repr_html_ or repr; of pictures the kind and the words of their texts are compared. Numbers of the output that are written with a point or an exponent may
differ by one part in a hundred or by 0.002: processors round differently. Whole numbers must be the same. --write stores what the cells print as their outputs. Exit code 1 names the first cell that fails.
"""
import argparse
import ast
import contextlib
import html
import io
import json
import os
import pathlib
import re
import sys
import traceback

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
WHOLE = re.compile(r"[-+]?\d+")


def equal(a, b):
    """Whether two written numbers are the same, as far as rounding allows it of those that are not whole."""
    if WHOLE.fullmatch(a) and WHOLE.fullmatch(b):
        return int(a) == int(b)
    return abs(float(a) - float(b)) <= max(0.002, 0.01 * abs(float(a)))


def same(expected, found):
    """Whether two outputs agree in every word, and in every number as far as its rounding allows."""
    if NUMBER.sub("#", re.sub(r" +", " ", expected)) != NUMBER.sub("#", re.sub(r" +", " ", found)):
        return False
    return all(equal(a, b) for a, b in zip(NUMBER.findall(expected), NUMBER.findall(found)))


def source_of(cell):
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def printed(cell):
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def shown(value):
    """What Jupyter shows of a value, by its type; nothing for None."""
    for kind, method in (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_")):
        if callable(getattr(type(value), method, None)):
            return {kind: getattr(value, method)()}
    return {} if value is None else {"text/plain": repr(value)}


def stored(cell):
    """The same as it is stored in the notebook."""
    for output in cell["outputs"]:
        if output["output_type"] == "execute_result":
            return {kind: "".join(text) for kind, text in output["data"].items()}
    return {}


def words(kind, text):
    """What is compared: a picture's words, not where they are."""
    if kind == "text/plain":
        return text
    without_tags = re.sub(r"<style.*?</style>|<[^>]*>", "\n", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s*\n\s*", "\n", without_tags)).strip()


def run_cell(code, names, title):
    """Runs the code; the value of its last line, or None."""
    tree = ast.parse(code, title)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";") else None
    exec(compile(tree, title, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), title, "eval"), names)


def run(path, write):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        for number, cell in enumerate(code, 1):
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    result = shown(run_cell(source_of(cell), names, f"{path.name}, cell {number}"))
            except (Exception, SystemExit):  # a cell that ends the program would end this one as if all was well
                traceback.print_exc()
                sys.exit(f"{path}: cell {number} fails")
            text = out.getvalue()
            if write:
                cell["execution_count"] = number
                lines = text.splitlines(keepends=True)
                cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
                if result:
                    data = {kind: shown_text.splitlines(keepends=True) for kind, shown_text in result.items()}
                    cell["outputs"].append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
                continue
            before_it = stored(cell)
            found = [("prints", printed(cell), text)]
            found += [("shows", words(kind, before_it.get(kind, "")), words(kind, result.get(kind, ""))) for kind in {**before_it, **result}]
            for verb, expected, now in found:
                if not same(expected, now):
                    sys.exit(f"{path}: cell {number} {verb}\n{now}\nbut the notebook has\n{expected}\nIf that is right, run this script with --write.")
    finally:
        os.chdir(before)
    if write:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path}: {len(code)} cells {'written' if write else 'agree'}")


parser = argparse.ArgumentParser()
parser.add_argument("notebooks", nargs="+", type=pathlib.Path)
parser.add_argument("--write", action="store_true")
options = parser.parse_args()
for notebook in options.notebooks:
    run(notebook.resolve(), options.write)
