// Mixtures of experts: which token went to which expert, layer by layer, and how evenly the experts are used.

import { useMemo, useState } from "preact/hooks";
import { Cells, type Cell } from "../cells";
import { Choice, Slider } from "../controls";
import type { Experts } from "../data";
import { floats, stored } from "../decode";
import { place, positions, tokenAt } from "../document";
import { exact, number } from "../format";
import { Heat, ScaleKey } from "../heat";
import { Reproduce, type Reproduction } from "../recipe";

const fewLayers = 8;

/** One of the layers with experts: side by side where they are few, else on a slider. */
function LayerChoice({ layers, value, onChange }: { layers: readonly { layer: number }[]; value: number; onChange: (index: number) => void }) {
  return layers.length <= fewLayers
    ? <Choice label="Layer" options={layers.map(({ layer }, i) => ({ value: i, name: String(layer) }))} value={value} onChange={onChange} />
    : <Slider label="Layer" min={0} max={layers.length - 1} value={value} onChange={onChange} says={String(layers[value]!.layer)} />;
}

type Layer = Experts["layers"][number];

/** [choice of a token]: its expert and weight. */
function choices(p: Experts, layer: Layer, token: number): { expert: number; weight: number }[] {
  const [chosen, weights] = [stored(layer.chosen), floats(layer.weights)];
  return Array.from({ length: p.perToken }, (_, k) => ({ expert: chosen[token * p.perToken + k]!, weight: weights[token * p.perToken + k]! }));
}

/** What the router says of one layer: tokens down, experts across. */
function Routing({ picture: p, layer }: { picture: Experts; layer: Layer }) {
  const [what, choose] = useState<"weight" | "probability">("weight");
  const [picked, pick] = useState<Reproduction | null>(null);
  const shown = layer.probabilities === null ? "weight" : what;
  const tokens = layer.chosen.shape[0]!;
  const value = useMemo(() => {
    if (shown === "probability") {
      const cells = floats(layer.probabilities!);
      return (token: number, expert: number) => cells[token * p.count + expert]!;
    }
    const cells = new Float32Array(tokens * p.count);
    for (let token = 0; token < tokens; ++token) for (const { expert, weight } of choices(p, layer, token)) cells[token * p.count + expert] = weight;
    return (token: number, expert: number) => cells[token * p.count + expert]!;
  }, [p, layer, shown, tokens]);
  // The scale ends at the largest number: shares among many experts are small.
  const most = useMemo(() => {
    let largest = 1e-30;
    for (let token = 0; token < tokens; ++token) for (let expert = 0; expert < p.count; ++expert) largest = Math.max(largest, value(token, expert));
    return largest;
  }, [p, tokens, value]);
  const say = (token: number, expert: number) => {
    const rank = choices(p, layer, token).findIndex((one) => one.expert === expert);
    const probability = layer.probabilities === null ? "" : `\n${p.share} ${exact(floats(layer.probabilities)[token * p.count + expert])}`;
    return rank < 0 ? `not chosen${probability}` : `choice ${rank + 1} of ${p.perToken}, weight ${exact(choices(p, layer, token)[rank]!.weight)}${probability}`;
  };
  const hook = `blocks.${layer.layer}.mlp.hook_${shown === "weight" ? "expert_weights" : "router_logits"}`;
  return (
    <>
      {layer.probabilities !== null && (
        <Choice label="Color" options={[{ value: "weight", name: "weight of the chosen" }, { value: "probability", name: `${p.share} of all` }]} value={what} onChange={(to) => { choose(to); pick(null); }} />
      )}
      <Heat
        label={`Layer ${layer.layer}: ${shown} of each expert for each token.`}
        rows={tokens}
        cols={p.count}
        value={value}
        scale="sequential"
        most={most}
        rowNames={Array.from({ length: tokens }, (_, i) => tokenAt(p.first + i))}
        colNames={Array.from({ length: p.count }, (_, e) => String(e))}
        rowTitle="token"
        colTitle="expert"
        cell={46}
        tall={tokens > 64 ? 8 : 20}
        write={(v) => (v === 0 ? "" : v.toFixed(2))}
        picks="how to write it to a file"
        onPick={() => pick({ title: `The router of layer ${layer.layer}`, hook, recipe: null, does: "" })}
        describe={(row, col) => `layer ${layer.layer}, ${place(p.first + row)}\nexpert ${col}: ${say(row, col)}\nclick: how to write it to a file`}
      />
      <ScaleKey scale="sequential" label={shown} low="0" high={number(most, 2)} />
      {picked !== null && <Reproduce key={hook} of={picked} onClose={() => pick(null)} />}
    </>
  );
}

const named = 3;

export function Choices({ picture: p }: { picture: Experts }) {
  const [index, choose] = useState(0);
  const layer = p.layers[index]!;
  const most = useMemo(() => Math.max(...p.layers.map((one) => floats(one.weights).reduce((a, b) => Math.max(a, b), 1e-30))), [p]);
  const cell = useMemo(() => (row: number, col: number): Cell => {
    const at = p.layers[row]!;
    const list = choices(p, at, col);
    return {
      word: list.slice(0, named).map((one) => one.expert).join(" ") + (list.length > named ? " …" : ""),
      note: list[0]!.weight.toFixed(2),
      share: list[0]!.weight / most,
      text: `layer ${at.layer}, ${place(p.first + col)}\n${list.map((one) => `expert ${one.expert}: weight ${exact(one.weight)}`).join("\n")}\nclick: this layer below`,
    };
  }, [p, most]);
  const names = useMemo(() => positions.slice(p.first).map(tokenAt), [p]);
  const numbers = useMemo(() => positions.slice(p.first).map(String), [p]);
  return (
    <>
      <p class="row-title">All layers: the experts of each token, the heaviest first</p>
      <Cells
        label="Experts of each token in each layer."
        rowNames={p.layers.map((one) => `layer ${one.layer}`)}
        colNames={names}
        colNumbers={numbers}
        cell={cell}
        onPick={(row) => choose(row)}
        picks="shows the layer below"
      />
      <div class="below-grid">
        <ScaleKey scale="sequential" label="weight of the heaviest" low="0" high={number(most, 2)} />
      </div>
      <LayerChoice layers={p.layers} value={index} onChange={choose} />
      <p class="row-title">Layer {layer.layer}: every expert</p>
      <Routing key={layer.layer} picture={p} layer={layer} />
    </>
  );
}
