// What the model expects next: after every position, and as the logit lens reads it after every layer.

import { useMemo, useState } from "preact/hooks";
import { Cells, type Cell } from "../cells";
import { Choice } from "../controls";
import type { LogitLens, NextTokens } from "../data";
import { positions, spelling, tokenAt, tokenNames, vitrine } from "../document";
import { count, exact, percent } from "../format";
import { ScaleKey } from "../heat";
import { Reproduce, type Reproduction } from "../recipe";
import { layerOff } from "../recipes";

export function Next({ picture: p }: { picture: NextTokens }) {
  const cell = useMemo(() => (row: number, position: number): Cell => {
    const [id, prob] = [p.ids[position]![row]!, p.probs[position]![row]!];
    const follows = vitrine.tokens[position + 1]?.id;
    const actual = p.actual?.[position];
    return {
      word: spelling(id),
      note: percent(prob),
      share: prob,
      framed: id === follows,
      text: `${spelling(id)}\nprobability ${exact(prob)}\nafter ${tokenAt(position)} (position ${position})`
        + (follows === undefined || actual === undefined ? "" : `\nreally follows: ${spelling(follows)}, probability ${exact(actual.prob)}, rank ${count(actual.rank)}`),
    };
  }, [p]);
  const rowNames = useMemo(() => Array.from({ length: p.k }, (_, i) => String(i + 1)), [p]);
  const numbers = useMemo(() => positions.map(String), []);
  return (
    <>
      <Cells fromEnd label="Most likely next tokens after every position." rowNames={rowNames} colNames={tokenNames} colNumbers={numbers} cell={cell} />
      <div class="below-grid">
        <ScaleKey scale="sequential" label="probability" low="0" high="1" />
        <span>framed: the token that follows in the prompt</span>
      </div>
    </>
  );
}

export function Lens({ picture: p }: { picture: LogitLens }) {
  const [what, choose] = useState<"top" | "final">("top");
  const [picked, pick] = useState<Reproduction | null>(null);
  const depths = p.depths.length;
  const cell = useMemo(() => (row: number, col: number): Cell => {
    const depth = depths - 1 - row;  // the last layer on top: the stream is read upwards
    const ids = p.ids[col]![depth]!;
    const probs = p.probs[col]![depth]!;
    const final = p.ids[col]![depths - 1]![0]!;
    return {
      word: spelling(ids[0]!),
      note: percent(what === "top" ? probs[0]! : p.finalProb[col]![depth]!),
      share: what === "top" ? probs[0]! : p.finalProb[col]![depth]!,
      framed: ids[0] === final,
      text: `${p.depths[depth]}, after ${tokenAt(p.positions[col]!)} (position ${p.positions[col]})\n${ids.slice(0, 5).map((id, i) => `${spelling(id)} ${exact(probs[i])}`).join("\n")}`
        + `\nKL from the final prediction ${exact(p.kl[col]![depth])} nats\nthe final ${spelling(final)}: probability ${exact(p.finalProb[col]![depth])}, rank ${count(p.finalRank[col]![depth]!)}`,
    };
  }, [p, what, depths]);
  const rowNames = useMemo(() => [...p.depths].reverse(), [p]);
  const colNames = useMemo(() => p.positions.map(tokenAt), [p]);
  const numbers = useMemo(() => p.positions.map(String), [p]);
  return (
    <>
      <Choice
        label="Color"
        options={[{ value: "top", name: "of the token shown" }, { value: "final", name: "of the final prediction" }]}
        value={what}
        onChange={choose}
      />
      <Cells fromEnd label="What each layer would predict after each position, the last layer on top." rowNames={rowNames} colNames={colNames} colNumbers={numbers} cell={cell} onPick={(row, col) => pick(layerOff(depths - 1 - row, p.ids[col]![depths - 1]![0]!, p.positions[col]!))} picks="how to leave the layer out" />
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
      <div class="below-grid">
        <ScaleKey scale="sequential" label="probability" low="0" high="1" />
        <span>framed: already the final prediction</span>
      </div>
    </>
  );
}
