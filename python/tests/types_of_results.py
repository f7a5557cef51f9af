"""What type checkers must find; scripts/check_python.sh runs them on this file, and nothing else runs it."""

from collections.abc import Iterator

import numpy as np
import vitrine
from typing_extensions import assert_type

model = vitrine.load()
tokens = model.to_tokens("Once")
assert_type(model.generate("Once", 5, temperature=0.5, stop="."), vitrine.Generation)
assert_type(model.generate("Once").text, str)
assert_type(model.generate([5, 6]), vitrine.Generation)
assert_type(model.generate(["Once", "The"], fwd_hooks=[]), vitrine.Generations)
assert_type(model.generate([[5, 6], [7]]).text, list[str])
assert_type(model.generate(tokens), vitrine.Generations)
assert_type(model.attribute("Once"), vitrine.Attribution)
assert_type(model.attribute(["Once"]), list[vitrine.Attribution])
assert_type(model.to_string([5, 6]), str)
assert_type(model.to_string(tokens), list[str])
assert_type(model.to_str_tokens("Once"), list[str])
assert_type(model.predict("Once")[-1].top[0].piece, str)
assert_type(next(model.stream("Once")), str)
assert_type(iter(model.stream("Once")), vitrine.TextStream)
pieces: Iterator[str] = model.stream("Once")
assert_type(model("Once"), vitrine.Floats)
assert_type(model("Once", "loss"), float)
assert_type(model("Once", return_type="loss"), float)
assert_type(model.run_with_cache("Once"), tuple[vitrine.Floats, vitrine.ActivationCache])
logits, cache = model.run_with_cache(["Once", "The"], "resid_post", positions=-1)
assert_type(cache["resid_post", 3], vitrine.Floats)
assert_type(cache.lengths, vitrine.Ids)
assert_type(cache.decompose_resid(pos_slice=-1), vitrine.Floats)
assert_type(cache.accumulated_resid(return_labels=True), tuple[vitrine.Floats, list[str]])
assert_type(model.run_with_cache("Once", return_type=None)[0], None)
assert_type(model.weights["W_E"], vitrine.EditableWeight)
assert_type(model.copy(), vitrine.Model)


def switch_off(z: vitrine.Floats, hook: vitrine.HookPoint) -> None:
    z[:, :, 2] = 0


assert_type(model.run_with_hooks("Once", fwd_hooks=[("z.5", switch_off), ("z.4", lambda z, hook: np.zeros_like(z))]), vitrine.Floats)
