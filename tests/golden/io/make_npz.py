"""Writes npz/stored.npz and npz/compressed.npz, arrays as numpy.savez and numpy.savez_compressed store them, and their values.

    pip install numpy
    python tests/golden/io/make_npz.py
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "npz"
rng = np.random.default_rng(3)
arrays = {
    "W_enc": rng.standard_normal((3, 5), dtype=np.float32),
    "half": rng.standard_normal(7).astype(np.float16),
    "wide": rng.standard_normal((2, 1, 3)),
    "scalar": np.float32(2.5),
    "empty": np.zeros((0, 4), np.float32),
    "flags": np.array([True, False]),  # a type that is not read
}
np.savez(HERE / "stored.npz", **arrays)
np.savez_compressed(HERE / "compressed.npz", **arrays)
(HERE / "expected.json").write_text(json.dumps(
    {k: {"shape": list(np.shape(v)), "values": np.asarray(v, np.float32).ravel().tolist()} for k, v in arrays.items() if k != "flags"}))
