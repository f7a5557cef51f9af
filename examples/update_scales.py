#!/usr/bin/env python3
"""Draws how much each attention and each MLP of a model adds to its residual stream.

usage: update_scales.py [TEXT] [--model MODEL] [--out update_scales.svg]

With σ the standard deviation over all positions and components, the scale of an update r that is added to a stream s is
sqrt(σ(r)² / (σ(r)² + σ(s)²)): the share of the sum that is new, if the two are uncorrelated. MODEL: a Hugging Face directory, a
.gguf file or an id in the local cache; without it, the shipped model.
"""
import argparse
import html

import numpy as np

import vitrine

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 336, 56, 16, 72, 48


def update_scales(model, text):
    """[layer, 2]: of the attention and of the MLP of each layer."""
    _, cache = model.run_with_cache(text, ["resid_pre", "attn_out", "resid_mid", "mlp_out"], return_type=None)

    def scale(update, stream):
        r, s = np.var(update, dtype=np.float64), np.var(stream, dtype=np.float64)
        return np.sqrt(r / (r + s))

    return np.array([[scale(cache["attn_out", layer], cache["resid_pre", layer]), scale(cache["mlp_out", layer], cache["resid_mid", layer])]
                     for layer in range(model.cfg.n_layers)])


def svg(scales, title, caption):
    """Dots over the layers, one color for each kind; exact values in tooltips."""
    layers = len(scales)
    x = lambda layer: LEFT + (WIDTH - LEFT - RIGHT) * (layer + 0.5) / layers
    y = lambda scale: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * scale
    lines = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
             f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>' for v in (0, 0.25, 0.5, 0.75, 1)]
    step = max(1, layers // 12)
    lines += [f'<text x="{x(layer):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{layer}</text>' for layer in range(0, layers, step)]
    lines.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">layer</text>')
    for kind, name in enumerate(("attention", "MLP")):
        lines += [f'<circle class="{name}" cx="{x(layer):.1f}" cy="{y(s):.1f}" r="5"><title>layer {layer}, {name}: {s:.4f}</title></circle>'
                  for layer, s in enumerate(scales[:, kind])]
        at = 21 + 90 * kind
        lines.append(f'<circle class="{name}" cx="{at}" cy="46" r="5"/><text x="{at + 10}" y="50">{name}</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">
<title>{html.escape(title)}</title>
<desc>{html.escape(caption)}</desc>
<style>
  svg {{ background: #fff; font: 12px system-ui, sans-serif }} text {{ fill: #333 }} .grid {{ stroke: #ddd }}
  .attention {{ fill: #0072b2 }} .MLP {{ fill: #d55e00 }}
  @media (prefers-color-scheme: dark) {{
    svg {{ background: #16181d }} text {{ fill: #ccc }} .grid {{ stroke: #333 }} .attention {{ fill: #56b4e9 }} .MLP {{ fill: #e69f00 }}
  }}
</style>
<text x="16" y="26" style="font-weight: 600">{html.escape(title)}</text>
{chr(10).join(lines)}
</svg>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default="In the middle of the forest there stood a house, and in the house lived an old woman")
    parser.add_argument("--model")
    parser.add_argument("--out", default="update_scales.svg")
    a = parser.parse_args()

    model = vitrine.load(a.model)
    scales = update_scales(model, a.text)
    layer, kind = np.unravel_index(scales.argmax(), scales.shape)
    caption = (f"Update scales of {scales.size} sub-layers over {len(model.to_tokens(a.text)[0])} tokens: half of them are below "
               f"{np.median(scales):.2f}; the largest is {scales.max():.2f}, layer {layer}'s {('attention', 'MLP')[kind]}.")
    for layer, (attention, mlp) in enumerate(scales):
        print(f"layer {layer:2}  attention {attention:.4f}  MLP {mlp:.4f}")
    print(caption)
    with open(a.out, "w", encoding="utf-8") as file:
        file.write(svg(scales, f"Share of the stream that each sub-layer adds: {model.cfg.family}, {model.cfg.n_layers} layers", caption))
    print(f"drawn to {a.out}")


if __name__ == "__main__":
    main()
