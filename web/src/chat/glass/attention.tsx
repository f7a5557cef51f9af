// Where the heads of each layer looked at this step: one cell a head, and the text weighted as one head saw it.

import { useMemo, useState } from "preact/hooks";
import { css, inkOn } from "../../color";
import { number, percent, piece, plural } from "../../format";
import { Heat, ScaleKey } from "../../heat";
import { useTheme } from "../../hooks";
import { commandLine, quoted, Reproduce } from "../reproduce";
import { useApp } from "../state";
import { useAnswer, type Step } from "./step";
import { Waiting } from "./waiting";

interface Inspected {
  pieces: (string | null)[];
  tokens: number[];
  hooks: { name: string; shape: number[]; values: (number | null)[][][] }[];
  command?: string;
}

const hook = "blocks.*.attn.hook_pattern[positions=-1]";
const shownTokens = 300;
const listed = 6;

export function Attention({ step }: { step: Step }) {
  const request = { path: "v1/inspect", body: { prompt: step.ids, hooks: [hook] } };
  const { value, trouble } = useAnswer<Inspected>(request);
  const { served } = useApp();
  if (value === null) return <Waiting trouble={trouble} />;
  return (
    <>
      <Patterns told={value} />
      <Reproduce what="attention" request={request} command={value.command ?? commandLine("trace", step.ids, `--hooks ${quoted(hook)} --out attention.safetensors`, served)} />
    </>
  );
}

function Patterns({ told }: { told: Inspected }) {
  const layers = useMemo(() => told.hooks.map(({ name, values }) => ({ layer: Number(/blocks\.(\d+)\./.exec(name)?.[1] ?? 0), heads: values.map((head) => head[0]!.map((weight) => weight ?? 0)) })), [told]);
  const strongest = useMemo(() => layers.map(({ heads }) => heads.map((weights) => weights.indexOf(Math.max(...weights)))), [layers]);
  const columns = Math.max(0, ...layers.map(({ heads }) => heads.length));
  const [chosen, choose] = useState<readonly [number, number]>([layers.length - 1, 0]);
  const row = Math.min(chosen[0], layers.length - 1);
  const weights = layers[row]?.heads[Math.min(chosen[1], columns - 1)];
  if (weights === undefined) return <p class="remark">This model has no attention.</p>;
  const name = (position: number) => piece(told.pieces[position] ?? `#${told.tokens[position]}`);
  return (
    <>
      <p class="remark">Each cell is one head: how much of its attention went to a single token. Choose a cell to see where it went.</p>
      <Heat
        label="Strongest weight of each head."
        rows={layers.length}
        cols={columns}
        value={(r, c) => layers[r]?.heads[c]?.[strongest[r]![c]!] ?? null}
        scale="sequential"
        most={1}
        rowNames={layers.map(({ layer }) => String(layer))}
        colNames={Array.from({ length: columns }, (_, head) => String(head))}
        rowTitle="layer"
        colTitle="head"
        cell={34}
        tall={22}
        describe={(r, c) => {
          const at = strongest[r]![c]!;
          return `Layer ${layers[r]!.layer}, head ${c}\nmost on ${name(at)} (position ${at}): ${percent(layers[r]!.heads[c]?.[at] ?? 0)}`;
        }}
        onPick={(r, c) => choose([r, c])}
        picks="shows where this head looked"
      />
      <ScaleKey scale="sequential" low="0" high="1" label="strongest weight" />
      <h3>Layer {layers[row]!.layer}, head {Math.min(chosen[1], columns - 1)}</h3>
      <Looks weights={weights} name={name} />
    </>
  );
}

function Looks({ weights, name }: { weights: readonly number[]; name: (position: number) => string }) {
  useTheme();
  const from = Math.max(0, weights.length - shownTokens);
  const most = Math.max(...weights, 1e-9);
  const order = weights.map((_, position) => position).sort((a, b) => weights[b]! - weights[a]!).slice(0, listed);
  return (
    <>
      <p class="weighted" tabIndex={0} role="group" aria-label="What the model had read, weighted">
        {from > 0 && <span class="remark">… {plural(from, "token")} before these … </span>}
        {weights.slice(from).map((weight, i) => {
          const share = weight / most;
          return <bdi key={i} style={{ background: css("sequential", share, 1), color: inkOn("sequential", share, 1) }} title={`position ${from + i}: ${number(weight)}`}>{name(from + i)}</bdi>;
        })}
      </p>
      <ol class="looks" aria-label="Strongest weights">
        {order.map((position) => <li key={position}><bdi>{name(position)}</bdi> <small>position {position}</small> <b>{percent(weights[position]!)}</b></li>)}
      </ol>
    </>
  );
}
