// The logit of a token as a sum over what wrote to the stream: layers and heads as a grid, everything else as bars.

import { useMemo, useState } from "preact/hooks";
import { Bars } from "../bars";
import { Choice } from "../controls";
import type { LogitAttribution } from "../data";
import { place, spelling } from "../document";
import { exact, number, percent } from "../format";
import { Heat, ScaleKey } from "../heat";
import { Reproduce, type Reproduction } from "../recipe";
import { headOff, sublayerOff } from "../recipes";

const targetsShown = 6;

function signed(value: number, digits = 3): string {
  return value < 0 ? number(value, digits) : `+${number(value, digits)}`;
}

export function Attribution({ picture: p }: { picture: LogitAttribution }) {
  const [index, choose] = useState(0);
  // Against the runner-up: a logit by itself is large for every likely token; what decides is the difference.
  const [rival, setRival] = useState<number | "nothing">(p.targets.length > 1 ? 1 : "nothing");
  const [picked, pick] = useState<Reproduction | null>(null);
  const chosen = p.targets[index]!;
  const other = rival === "nothing" || rival === index ? undefined : p.targets[rival];
  const target = useMemo(() => (other === undefined ? chosen : {
    ...chosen,
    logit: chosen.logit - other.logit,
    uncapped: chosen.uncapped - other.uncapped,
    parts: chosen.parts.map((part, i) => part - other.parts[i]!),
    remainder: chosen.remainder - other.remainder,
  }), [chosen, other]);
  const name = other === undefined ? `the logit of ${spelling(chosen.id)}` : `the logit of ${spelling(chosen.id)} against that of ${spelling(other.id)}`;
  const measure = { token: chosen.id, at: p.position, ...(other === undefined ? {} : { against: other.id }) };
  const content = useMemo(() => {
    const layers = Math.max(-1, ...p.components.map((c) => c.layer)) + 1;
    const heads = Math.max(-1, ...p.components.map((c) => c.head)) + 1;
    const grid = Array.from({ length: layers }, () => new Array<number | null>(heads + 1).fill(null));
    const rest: { name: string; value: number }[] = [];
    const sums = { heads: 0, mlp: 0 };
    p.components.forEach((component, i) => {
      const value = target.parts[i]!;
      if (component.kind === "head") {
        grid[component.layer]![component.head] = value;
        sums.heads += value;
      } else if (component.kind === "mlp") {
        grid[component.layer]![heads] = value;
        sums.mlp += value;
      } else rest.push({ name: component.label, value });
    });
    // Biases of single layers are many and small: they share one bar.
    const few = rest.length <= 8 ? rest : [...rest.filter((r) => r.name === "embedding" || Math.abs(r.value) > 0.02 * Math.abs(target.uncapped)), { name: "other biases", value: rest.filter((r) => !(r.name === "embedding" || Math.abs(r.value) > 0.02 * Math.abs(target.uncapped))).reduce((a, r) => a + r.value, 0) }];
    const bars = [...few, { name: "all heads", value: sums.heads }, { name: "all MLPs", value: sums.mlp }, { name: "remainder", value: target.remainder }, { name: other === undefined ? "logit" : "difference", value: target.uncapped }];
    return { layers, heads, grid, bars, most: Math.max(...grid.flat().map((v) => Math.abs(v ?? 0)), 1e-9) };
  }, [p, target, other]);
  const { grid, heads, layers, most } = content;
  const value = useMemo(() => (row: number, col: number) => grid[row]![col]!, [grid]);
  const part = (col: number) => (col === heads ? "MLP" : `head ${col}`);
  return (
    <>
      <Choice
        label="Logit of"
        options={p.targets.slice(0, targetsShown).map((t, i) => ({ value: i, name: `${spelling(t.id)} ${percent(t.prob)}` }))}
        value={index}
        onChange={choose}
      />
      <Choice<number | "nothing">
        label="Against"
        options={[{ value: "nothing", name: "nothing" }, ...p.targets.slice(0, targetsShown).flatMap((t, i) => (i === index ? [] : [{ value: i, name: spelling(t.id) }]))]}
        value={other === undefined ? "nothing" : rival}
        onChange={setRival}
      />
      <div class="beside">
        <div class="half">
          <p class="row-title">Written by each head and MLP</p>
          <Heat
            label={`Contribution of each head and MLP to ${name}.`}
            rows={layers}
            cols={heads + 1}
            value={value}
            scale="diverging"
            most={most}
            rowNames={Array.from({ length: layers }, (_, layer) => `layer ${layer}`)}
            colNames={Array.from({ length: heads + 1 }, (_, col) => (col === heads ? "MLP" : String(col)))}
            colTitle="head"
            cell={58}
            tall={26}
            write={(v) => (most < 0.1 ? signed(v, 2) : `${v < 0 ? "−" : "+"}${Math.abs(v).toFixed(2)}`.replace(/^[−+]0\.00$/, "0"))}
            picks="how to switch it off"
            onPick={(row, col) => pick(col === heads ? sublayerOff(row, "mlp", measure) : headOff(row, col, measure))}
            describe={(row, col) => `layer ${row}, ${part(col)}\n${value(row, col) === null ? "nothing" : `adds ${exact(value(row, col))}`} to ${name}\nclick: how to switch it off`}
          />
          <ScaleKey scale="diverging" label={other === undefined ? "adds to the logit" : `orange: for ${spelling(other.id)}, blue: for ${spelling(chosen.id)}`} low={number(-most)} high={`+${number(most)}`} />
        </div>
        <div class="half">
          <p class="row-title">The sum</p>
          <Bars
            label={`Sum of the contributions to ${name}.`}
            most={Math.max(...content.bars.map((b) => Math.abs(b.value)), 1e-9)}
            bars={content.bars.map((b) => ({ ...b, tone: b === content.bars.at(-1) ? "strong" : b.value < 0 ? "negative" : "attention", note: b === content.bars.at(-1) ? number(b.value, 4) : Math.abs(b.value) < 1e-3 * Math.abs(content.bars.at(-1)!.value) ? "nearly 0" : signed(b.value), text: `${b.name}\n${exact(b.value)}` }))}
          />
          {target.logit !== target.uncapped && <p class="remark">The final cap makes {other === undefined ? "" : "the difference of "}{number(target.uncapped, 4)} into {number(target.logit, 4)}.</p>}
          {other !== undefined && <p class="remark">A difference of {number(target.logit)} makes <bdi>{spelling(chosen.id)}</bdi> {number(Math.exp(Math.abs(target.logit)))} times as {target.logit < 0 ? "unlikely" : "likely"} as <bdi>{spelling(other.id)}</bdi>.</p>}
        </div>
      </div>
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
      <p class="remark">At {place(p.position)}, with the scales of the norms as in this run.</p>
    </>
  );
}
