// Which heads look at a token: from the last token, where the answer is made.

import { useMemo, useState } from "preact/hooks";
import { Bars } from "../bars";
import { Slider } from "../controls";
import type { Attention } from "../data";
import { place, tokenAt } from "../document";
import { square, weightShare, weightText } from "./attention-data";

const shown = 6;

export function WhoLooks({ picture: p, onPick }: { picture: Attention; onPick: (head: readonly [number, number]) => void }) {
  const target = p.nTokens - 1;
  const [wanted, want] = useState(target - 1);
  const source = Math.min(wanted, target);
  const heads = useMemo(() => Array.from({ length: p.nLayers }, (_, layer) => Array.from({ length: p.nHeads }, (_, head) => ({ layer, head, weight: square(p, layer, head)(target, source) ?? 0 })))
    .flat().sort((a, b) => b.weight - a.weight).slice(0, shown), [p, source]);
  return (
    <div class="who-looks">
      <p class="row-title">Which heads look at <bdi>{tokenAt(source)}</bdi> from <bdi>{tokenAt(target)}</bdi>, the last token</p>
      <Slider label="Looked at" min={0} max={target} value={source} onChange={want} says={place(source)} />
      <Bars
        label={`Heads that look most from ${place(target)} at ${place(source)}.`}
        most={1}
        bars={heads.map(({ layer, head, weight }) => ({ name: `layer ${layer}, head ${head}`, value: weight, tone: "attention", note: weightShare(weight), text: `layer ${layer}, head ${head}\n${place(target)} looks at ${place(source)}: weight ${weightText(weight)}\nclick or Enter: show this head above` }))}
        onPick={(i) => onPick([heads[i]!.layer, heads[i]!.head])}
      />
    </div>
  );
}
