"""Curves of rising learning rates, read with numpy: find_rate.json.

Smoothing, the end of a diverging curve and the points that are left out are those of PyTorch Lightning's learning-rate finder
(pytorch_lightning/tuner/lr_finder.py: beta 0.98, early_stop_threshold 4, skip_begin a tenth of the steps, skip_end 1). The descent is
taken by the logarithm of the rate, as fastai's `steep` does; the rates are equally far apart by it.

usage: make_find_rate.py   (numpy)
"""
import json, pathlib
import numpy as np

HERE = pathlib.Path(__file__).parent


def read(losses, rates, steps):
    average, smoothed, best, diverged = 0.0, [], None, False
    for i, loss in enumerate(losses):
        average = 0.98 * average + 0.02 * loss
        smoothed.append(average / (1 - 0.98 ** (i + 1)))
        if i > 0 and smoothed[-1] > 4 * best:
            diverged = True
            break
        if best is None or smoothed[-1] < best:
            best = smoothed[-1]
    begin = steps // 10
    kept = np.array(smoothed)[begin:-1]
    slopes = np.gradient(kept) if len(kept) > 1 else np.array([])
    at = int(slopes.argmin()) if len(slopes) else -1
    suggestion = rates[at + begin] if at >= 0 and slopes[at] < 0 else None
    return smoothed, diverged, suggestion


def main():
    random = np.random.default_rng(1)
    cases = []
    for name, steps, fall, rise in [("falls", 100, 2e-3, 10.0), ("diverges", 100, 1e-4, 1e-2), ("short", 12, 1e-3, 10.0),
                                    ("late", 60, 0.3, 10.0), ("only_rises", 40, 10.0, 1e-3)]:
        rates = 1e-8 * (1 / 1e-8) ** (np.arange(steps) / (steps - 1))
        losses = 2 + 6 / (1 + (rates / fall)) + 200 * (rates / rise) ** 2
        if name != "only_rises":
            losses = losses + random.normal(0, 0.05, steps)
        smoothed, diverged, suggestion = read(losses, rates, steps)
        cases.append({"name": name, "steps": steps, "rates": rates.tolist(), "losses": losses.tolist(), "smoothed": smoothed,
                      "diverged": diverged, "suggestion": suggestion})
        print(name, len(smoothed), diverged, suggestion)
    (HERE / "find_rate.json").write_text(json.dumps(cases) + "\n")


main()
