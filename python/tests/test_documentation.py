"""The programs that the manual shows run, and print what they should."""

import contextlib
import io
import re
import unittest

import vitrine
from support import SOURCE, Case


class Documentation(Case):
    def test_the_page_about_python(self):
        (program,) = re.findall(r"```python\n(.*?)```", (SOURCE / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            exec(program, names)
        self.assertIn("60.37%  ▁there", said.getvalue())
        self.assertEqual(said.getvalue().count(" there lived a king"), 2)
        self.assertEqual(names["logits"].shape, (1, 6, 4096))

    def test_the_docstring(self):
        model = vitrine.load()
        self.assertEqual(model.predict("Once upon a time")[-1].top[0].piece, "▁there")
        _, cache = model.run_with_cache("Once upon a time")
        self.assertEqual(cache["pattern", 0].shape, (1, 4, 6, 6))

    def test_every_public_name_is_there_and_explained(self):
        for name in vitrine.__all__:
            self.assertTrue(name == "__version__" or getattr(vitrine, name).__doc__, name)
        for name, value in vars(vitrine.Model).items():
            if not name.startswith("_"):
                self.assertTrue(value.__doc__, f"Model.{name}")


if __name__ == "__main__":
    unittest.main()
