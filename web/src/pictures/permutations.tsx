// The permutation law on a real head: a shuffle at a press, both sides of each step, and what the mask and positions do to it.

import { useState } from "preact/hooks";
import { Choice } from "../controls";
import type { Permutations } from "../data";
import { floats } from "../decode";
import { place, space, tokenAt } from "../document";
import { number, percent, spaceShown } from "../format";
import { Heat, ScaleKey } from "../heat";

/** Differences of this size are what rounding of 16-digit numbers leaves. */
const rounding = 1e-9;

function Step({ formula, difference, says }: { formula: string; difference: number | null; says?: string }) {
  if (difference === null) return null;
  const holds = difference < rounding;
  return (
    <li class={holds ? "law holds" : "law fails"}>
      <span class="law-formula">{formula}</span> <strong>{holds ? "holds" : "fails"}</strong>: largest difference {difference === 0 ? "0" : number(difference, 2)}{says === undefined ? "" : ` ${says}`}
    </li>
  );
}

function Weights({ title, weights, order }: { title: string; weights: ArrayLike<number>; order: readonly number[] }) {
  const n = order.length;
  return (
    <div class="half">
      <p class="panel-title">{title}</p>
      <Heat
        label={title} rows={n} cols={n} value={(row, col) => weights[row * n + col] ?? null} scale="sequential" most={1} cell={26} tall={18}
        rowNames={order.map(tokenAt)} colNames={order.map(tokenAt)}
        describe={(row, col) => `${place(order[row]!)} looks at ${place(order[col]!)}\n${percent(weights[row * n + col] ?? 0)}`}
      />
    </div>
  );
}

export function Shuffles({ picture: p }: { picture: Permutations }) {
  const [at, shuffle] = useState(0);
  const [which, choose] = useState(0);
  const one = p.shuffles[at]!;
  const condition = p.conditions[which] ?? p.conditions[0]!;
  const found = condition.shuffles[at]!;
  const usual = floats(condition.A);
  const n = p.n;
  // P A(x) Pᵀ: both rows and columns of A(x) in the new order.
  const moved = Float32Array.from({ length: n * n }, (_, i) => usual[one.order[Math.floor(i / n)]! * n + one.order[i % n]!]!);
  return (
    <div class="shuffles">
      <p>
        <button type="button" class="more shuffle" onClick={() => shuffle((at + 1) % p.shuffles.length)}>Shuffle</button>
        <span class="shuffle-name" aria-live="polite"> {one.name}: {one.order.map(tokenAt).join(" ")}</span>
      </p>
      {space !== null && <p class="remark space-legend">{spaceShown} stands for a space.</p>}
      <Choice label="The head" options={p.conditions.map((c, i) => ({ value: i, name: c.name }))} value={which} onChange={choose} />
      <div class="beside">
        <Weights title="A(Px): made anew in the new order" weights={floats(found.A)} order={one.order} />
        <Weights title="P A(x) Pᵀ: A(x) with its rows and columns moved" weights={moved} order={one.order} />
      </div>
      <ScaleKey scale="sequential" label="weight of attention" low="0" high="1" />
      <ol class="laws">
        <Step formula="A(Px) = P A(x) Pᵀ" difference={found.pattern} />
        <Step formula="PᵀP = 1" difference={one.inverse} />
        <Step formula="h(Px) = P h(x)" difference={found.output} says="of the largest number in h" />
      </ol>
      {one.mlp !== null && <p class="remark">The MLP of this layer, run on the shuffled rows: largest difference of MLP(Px) and P MLP(x) {one.mlp === 0 ? "0" : number(one.mlp, 2)}.</p>}
    </div>
  );
}
