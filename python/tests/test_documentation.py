"""The programs that the manual shows run, and print what they should."""

import contextlib
import doctest
import io
import json
import re
import unittest

import vitrine
from support import GOLDEN, SOURCE, Case


class Documentation(Case):
    def test_the_page_about_python(self):
        (program,) = re.findall(r"```python\n(.*?)```", (SOURCE / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            exec(program, names)
        (gold, *_) = json.loads((GOLDEN / "tales9m" / "golden.json").read_text(encoding="utf-8"))
        _, piece, prob = gold["top10_next"][0]
        self.assertIn(f"{prob:.2%}  {piece}", said.getvalue())
        self.assertEqual(said.getvalue().count(gold["greedy_text"][:30]), 2)
        self.assertEqual(names["logits"].shape, (1, len(gold["ids"]), 6144))

    def test_the_docstring(self):
        found = doctest.testmod(vitrine)
        self.assertEqual(found.failed, 0)
        self.assertGreaterEqual(found.attempted, 5)

    def test_every_public_name_is_there_and_explained(self):
        for name in vitrine.__all__:
            self.assertTrue(name == "__version__" or getattr(vitrine, name).__doc__, name)
        for name, value in vars(vitrine.Model).items():
            if not name.startswith("_"):
                self.assertTrue(value.__doc__, f"Model.{name}")


if __name__ == "__main__":
    unittest.main()
