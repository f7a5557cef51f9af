"""Where the tests' models and golden numbers lie, and how close is close."""

import pathlib
import unittest

import numpy as np

import vitrine

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests" / "golden"


def golden_model(name: str) -> str:
    return str(GOLDEN / "models" / name / "model")


class Case(unittest.TestCase):
    def assert_close(self, ours, expected, absolute=2e-5, relative=1e-4, what=""):
        self.assertEqual(np.shape(ours), np.shape(expected), what)
        ours, expected = np.asarray(ours, np.float64), np.asarray(expected, np.float64)
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(ours), finite, what)
        excess = np.abs(ours[finite] - expected[finite]) / (absolute + relative * np.abs(expected[finite]))
        self.assertLessEqual(excess.max(initial=0), 1, what)

    def assert_says(self, error, *words):
        """A context that expects `error` with all these words in its text."""
        return _Says(self, error, words)


class _Says:
    def __init__(self, case, error, words):
        self.case, self.error, self.words = case, error, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        self.case.assertIsNotNone(kind, f"nothing was raised; expected {self.error.__name__}")
        if not issubclass(kind, self.error):
            return False
        for word in self.words:
            self.case.assertIn(word, str(error))
        self.exception = error
        return True


def tales() -> vitrine.Model:
    return vitrine.load(compute="f32")
