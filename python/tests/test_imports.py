"""The modules of the package import each other in one direction."""

import ast
import graphlib
import pathlib
import unittest

import vitrine


def imports_of(source: str, modules: set[str]) -> set[str]:
    """The modules that this source imports anywhere: at the top, in functions, and for types alone."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            inside = node.module or "" if node.level else (node.module or "").removeprefix("vitrine").lstrip(".")
            if node.level or (node.module or "").split(".")[0] == "vitrine":
                found |= {inside.split(".")[0]} if inside else {name.name for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("vitrine.")}
    return found & modules


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


class Imports(unittest.TestCase):
    def test_modules_form_no_cycle(self):
        files = {path.stem: path for path in pathlib.Path(vitrine.__file__).parent.glob("*.py")}
        graph = {name: imports_of(path.read_text(encoding="utf-8"), set(files)) for name, path in files.items()}
        self.assertGreater(sum(map(len, graph.values())), len(graph))
        self.assertEqual(cycle_in(graph), [])

    def test_a_cycle_is_found_wherever_its_imports_stand(self):
        sources = {
            "model": "from . import weights\nfrom .errors import InputError",
            "weights": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .hooks import Hook",
            "hooks": "def f():\n    from vitrine.model import Model",
            "errors": "import numpy",
        }
        graph = {name: imports_of(source, set(sources)) for name, source in sources.items()}
        self.assertEqual(set(cycle_in(graph)), {"model", "weights", "hooks"})


if __name__ == "__main__":
    unittest.main()
