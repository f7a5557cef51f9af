"""Draws curve.svg and writes curve.json from the metrics of a run's stages: validation bits per byte by tokens, beside the baseline's.

usage: python models/training/curve.py METRICS.jsonl[.gz]...

Each stage goes on from the one before it: its tokens are counted on top. The baseline is a model of the same shape with 4,096 pieces, trained by PyTorch 2.15 with AdamW and a cosine to 10 % for 5,000 steps
of 16 x 256 tokens on the same text: baseline.json.
"""
import gzip
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 360, 56, 44, 16, 16


def points(path, before):
    """The validation losses of a stage, and the tokens up to its end."""
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path)
    with opened as lines:
        found = [json.loads(line) for line in lines]
    return [{"step": m["step"], "tokens": before + m["tokens"], "valid_loss": round(m["val_loss"], 4), "bits_per_byte": round(m["val_bits_per_byte"], 4)}
            for m in found if "val_loss" in m and m["step"] > 0], before + found[-1]["tokens"]


def main():
    ours, tokens = [], 0
    for stage, path in enumerate(sys.argv[1:], 1):
        found, tokens = points(path, tokens)
        ours += [{"stage": stage} | point for point in found]
    baseline = [p for p in json.loads((HERE / "baseline.json").read_text())["curve"] if p["step"] > 0]
    (HERE / "curve.json").write_text(json.dumps({"curve": ours}, indent=1) + "\n")
    most = max(p["tokens"] for p in ours + baseline) * 1.02
    values = [p["bits_per_byte"] for p in ours + baseline]
    low, high = min(values) - 0.03, max(values) + 0.03

    def x(tokens):
        return LEFT + tokens / most * (WIDTH - LEFT - RIGHT)

    def y(bits):
        return TOP + (high - bits) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for tenth in range(int(low * 10) + 1, int(high * 10) + 1):
        at = y(tenth / 10)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    for million in range(0, int(most / 1e6) + 1, 5):
        out.append(f'<text x="{x(million * 1e6):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{million} M</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens</text>')
    out.append(f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">validation, bits per byte</text>')
    for name, curve, color, dash, place in (("PyTorch baseline", baseline, "#b35900", "5 4", 34), ("vitrine train", ours, "#0b5cad", "none", 54)):
        line = "L".join(f"{x(p['tokens']):.1f} {y(p['bits_per_byte']):.1f}" for p in curve)
        out.append(f'<path d="M{line}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out.append(f'<text x="{WIDTH - RIGHT - 8}" y="{place}" text-anchor="end" fill="{color}">{name}: {curve[-1]["bits_per_byte"]:.4f} at the end</text>')
    out.append("</svg>")
    (HERE / "curve.svg").write_text("\n".join(out) + "\n")


main()
