// The map: this very model from the tokens to the prediction, every part as large as its share of the parameters. In the
// article it is walked through and leads to the steps; beside the text it shows what the step at hand is about.

import { useMemo } from "preact/hooks";
import type { Model, Step } from "./data";
import { named, spelling, tokenAt, vitrine } from "./document";
import { count, percent, plural, px, short } from "./format";
import { useWidth } from "./hooks";
import { useLive, type Next } from "./live/state";
import { Drawing, type Mark } from "./marks";
import { chooseHead } from "./pictures/attention-choice";

type Kind = "tokens" | "embedding" | "norm" | "attention" | "mlp" | "output";

/** What each step is about. */
const about: Record<string, readonly Kind[]> = {
  tokens: ["tokens"], embedding: ["embedding"], positions: ["embedding"], "embedding-scale": ["embedding"], residual: ["attention", "mlp"],
  norm: ["norm"], attention: ["attention"], "soft-cap": ["attention", "output"], rope: ["attention"], mlp: ["mlp"], "post-norm": ["norm"],
  "final-norm": ["norm"], output: ["output"], attribution: ["embedding", "attention", "mlp"], "input-attribution": ["tokens"], reach: ["attention"],
  "back-propagation": ["embedding", "attention", "mlp"], merging: ["mlp"],
};
/** The step that explains a part. */
const stepOf: Record<Kind, string> = { tokens: "tokens", embedding: "embedding", norm: "norm", attention: "attention", mlp: "mlp", output: "output" };

export interface Sizes {
  embedding: number;
  /** A table of its own for the output; 0 where the embedding is used again. */
  output: number;
  /** Of one layer. The MLP's are what the layers hold beside attention, norms included. */
  attention: number;
  mlp: number;
}

/** Parameters by part. */
export function sizes(m: Model): Sizes {
  const embedding = m.embeddingParameters;
  const output = m.tied ? 0 : m.vocabSize * m.dModel;
  const grouping = vitrine.pictures["head-grouping"];
  const attention = grouping?.available === true
    ? grouping.parameters.q + grouping.parameters.k + grouping.parameters.v + grouping.parameters.o
    : 2 * m.dModel * m.headDim * (m.nHeads + m.nKvHeads);
  return { embedding, output, attention, mlp: Math.max(0, (m.parameters - embedding - output) / m.nLayers - attention) };
}

interface Box {
  kind: Kind;
  x: number;
  y: number;
  width: number;
  height: number;
  layer: number;
  head: number;
  /** Of the grid's rows: marks of one series are walked through sideways. */
  series: number;
  text: string;
}

interface Layout {
  boxes: readonly Box[];
  rows: readonly { y: number; height: number; layer: number }[];
  left: number;
  stream: number;
  height: number;
}

/** Every part with its place. Area goes with the number of parameters; what would be thinner than a line is one pixel thick. */
export function layout(m: Model, width: number, row: number, left: number): Layout {
  const s = sizes(m);
  const stream = left + 8;
  const from = left + 20;
  const room = width - from - 1;
  const perLayer = s.attention + s.mlp || 1;
  const all = m.parameters;
  const share = (part: number) => `${count(part)} numbers, ${percent(part / all)} of the model`;
  const boxes: Box[] = [];
  const rows: { y: number; height: number; layer: number }[] = [];
  let series = 0;
  let y = 24;
  const table = (kind: Kind, name: string, part: number) => {
    const height = Math.max(3, (row * part) / perLayer);
    boxes.push({ kind, x: from, y, width: room, height, layer: -1, head: -1, series: series++, text: `${name}\n${share(part)}` });
    y += height + 9;
  };
  boxes.push({ kind: "tokens", x: from, y: 2, width: room, height: 16, layer: -1, head: -1, series: series++, text: `the prompt\n${plural(vitrine.tokens.length, "token")}` });
  table("embedding", m.tied ? "embedding table, used again for the scores at the end" : "embedding table", s.embedding);
  const gap = row >= 12 ? 5 : row >= 6 ? 2 : 1;
  for (let layer = 0; layer < m.nLayers; ++layer) {
    rows.push({ y, height: row, layer });
    const wide = Math.max(2, ((room - 6) * s.attention) / perLayer);
    const window = m.windows[layer] ?? 0;
    const sees = window > 0 ? `sees the last ${plural(window, "token")}` : m.contextLength > 0 ? `sees all ${count(m.contextLength)} tokens` : "sees every token before";
    const single = wide / m.nHeads;
    const apart = single >= 5;  // heads that are too thin are one box
    for (let head = 0; head < (apart ? m.nHeads : 1); ++head) {
      const shared = m.nHeads / m.nKvHeads;
      const which = apart ? `layer ${layer}, head ${head}` : `layer ${layer}, attention: ${plural(m.nHeads, "head")}`;
      const keys = !apart || shared <= 1 ? "" : `\nshares keys and values with ${shared - 1 === 1 ? "one other head" : `${shared - 1} other heads`}`;
      boxes.push({
        kind: "attention", x: from + (apart ? head * single : 0), y, width: Math.max(1, (apart ? single : wide) - (apart ? 1 : 0)), height: row, layer, head: apart ? head : -1, series,
        text: `${which}\n${sees}${keys}\nattention of the layer: ${share(s.attention)}`,
      });
    }
    boxes.push({ kind: "mlp", x: from + wide + 5, y, width: Math.max(1, room - wide - 5), height: row, layer, head: -1, series, text: `layer ${layer}, ${vitrine.pictures.experts?.available === true ? "experts" : `MLP (${m.mlpTitle})`}\n${share(s.mlp)}` });
    ++series;
    y += row + gap;
  }
  y += 4;
  boxes.push({ kind: "output", x: from, y, width: room, height: s.output > 0 ? Math.max(3, (row * s.output) / perLayer) : 16, layer: -1, head: -1, series: series++, text: s.output > 0 ? `output table\n${share(s.output)}` : `scores for ${count(m.vocabSize)} next tokens, with the embedding table` });
  y += boxes.at(-1)!.height + 8;
  return { boxes, rows, left, stream, height: y };
}

/** Layers are as high as leaves the whole on a screen. */
const rowHeight = (layers: number, room: number) => Math.max(2, Math.min(30, Math.floor(room / layers)));

function Boxes({ of, lit }: { of: Layout; lit: readonly Kind[] | null }) {
  const windows = vitrine.model.windows;
  const top = of.boxes[0]!.y + 6;
  const last = of.boxes.at(-1)!;
  return (
    <>
      <path class="map-stream" d={`M${of.boxes[0]!.x},${top}H${of.stream}V${last.y + last.height / 2}H${last.x}`} />
      {of.boxes.map((box, i) => (
        <rect
          key={i}
          class={`map-${box.kind}${box.kind === "attention" && (windows[box.layer] ?? 0) > 0 ? " windowed" : ""}${lit === null || lit.includes(box.kind) ? "" : " dim"}`}
          x={box.x}
          y={box.y}
          width={box.width}
          height={box.height}
          rx={Math.min(2, box.height / 4)}
        />
      ))}
      {of.rows.map((row) => (
        <g key={row.layer} class={lit === null || lit.includes("norm") ? "map-norms" : "map-norms dim"}>
          <line x1={of.stream} x2={of.boxes[0]!.x} y1={row.y + row.height / 2} y2={row.y + row.height / 2} />
        </g>
      ))}
    </>
  );
}

function windowWords(m: Model): string {
  const windowed = m.windows.filter((w) => w > 0);
  if (windowed.length === 0) return "";
  const least = Math.min(...windowed);
  const all = windowed.length === m.windows.length;
  const reach = windowed.every((w) => w === least) ? plural(least, "token") : `a window of tokens`;
  return all ? ` Hatched: every layer sees the last ${reach} only.` : ` Hatched heads see the last ${reach} only, the others everything.`;
}

export function ModelMap({ steps }: { steps: readonly Step[] }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const m = vitrine.model;
  const s = sizes(m);
  const row = rowHeight(m.nLayers, 300);
  const left = width < 480 ? 26 : 62;
  const drawn = useMemo(() => (width > 0 ? layout(m, width, row, left) : null), [width]);
  const stepFor = (kind: Kind) => steps.findIndex((step) => step.id === stepOf[kind]);
  const marks: Mark[] = (drawn?.boxes ?? []).map((one) => {
    const at = stepFor(one.kind);
    return { x: one.x + one.width / 2, y: one.y + one.height / 2, series: one.series, text: `${one.text}${at < 0 ? "" : `\nclick or Enter: to step ${at + 1}, ${steps[at]!.title}`}` };
  });
  const go = (index: number) => {
    const one = drawn?.boxes[index];
    if (one === undefined || stepFor(one.kind) < 0) return;
    const leads = one.head >= 0 ? document.getElementById("picture-attention") : document.getElementById(stepOf[one.kind]);
    if (one.head >= 0) chooseHead(one.layer, one.head);
    leads?.scrollIntoView();
  };
  const every = Math.max(1, Math.ceil(15 / (row + 5)));
  const named = (kind: Kind) => drawn!.boxes.find((one) => one.kind === kind)!;
  const word = (one: Box, text: string, at: "start" | "middle") => text.length * 7 < one.width - 8 && one.height >= 14 && (
    <text class="map-word" x={at === "start" ? one.x + 7 : one.x + one.width / 2} y={one.y + one.height / 2} dy="0.34em" text-anchor={at}>{text}</text>
  );
  const attentionWide = drawn === null ? 0 : drawn.boxes.filter((one) => one.kind === "attention" && one.layer === 0).reduce((sum, one) => sum + one.width + 1, 0);
  return (
    <figure class="map" id="map" aria-labelledby="title-map" aria-describedby="alt-map">
      <p class="figure-title" id="title-map">The map: every part of this model, to scale</p>
      <p class="unseen" id="alt-map">
        From top to bottom: the prompt, the embedding table, {plural(m.nLayers, "layer")} with {plural(m.nHeads, "attention head")} and an MLP each, and the scores. The embedding has {count(s.embedding)} numbers, the attention of one layer {count(s.attention)}, the rest of a layer {count(s.mlp)}.
      </p>
      <div ref={box} class="figure-body" style={{ minHeight: px(drawn?.height ?? 200) }}>
        {drawn !== null && (
          <Drawing label={`Map of the model. Enter goes to the step that explains a part.`} width={width} height={drawn.height} marks={marks} reach={2000} onPick={go} class="map-drawing">
            <defs>
              <pattern id="map-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="map-hatch-ground" width="5" height="5" /><rect class="map-hatch-line" width="1.6" height="5" /></pattern>
            </defs>
            <Boxes of={drawn} lit={null} />
            {drawn.rows.map((one) => one.layer % every === 0 && <text key={one.layer} class="axis-label" x={left - 6} y={one.y + one.height / 2} dy="0.34em" text-anchor="end">{left < 40 ? one.layer : `layer ${one.layer}`}</text>)}
            {word(named("tokens"), `the prompt, ${plural(vitrine.tokens.length, "token")}`, "start")}
            {word(named("embedding"), "embedding table", "start")}
            {word(named("mlp"), vitrine.pictures.experts?.available === true ? "experts" : "MLP", "middle")}
            {word(named("output"), "scores of the next token", "start")}
            {attentionWide > 80 && row >= 12 && drawn.boxes.filter((one) => one.kind === "attention" && one.layer === 0 && one.width > 18).map((one) => <text key={one.head} class="map-word halo" x={one.x + one.width / 2} y={one.y + one.height / 2} dy="0.34em" text-anchor="middle">{one.head >= 0 ? one.head : "attention"}</text>)}
          </Drawing>
        )}
      </div>
      <figcaption>
        Read from top to bottom. Area is number of parameters: {count(m.parameters)} in all. Blue: attention, one box a head; orange: MLP; the line at the left is the residual stream that every part reads and adds to, through norms too small to draw.{windowWords(m)} Click a part to go to the step that explains it.
      </figcaption>
    </figure>
  );
}

/** The map beside the text: what the step is about stands out. */
export function SmallMap({ step, width, room }: { step: string | null; width: number; room: number }) {
  const m = vitrine.model;
  const drawn = useMemo(() => layout(m, width, rowHeight(m.nLayers, room), 0), [width, room]);
  const s = sizes(m);
  const most = Math.min(drawn.height, room + 40 + Math.min(120, (rowHeight(m.nLayers, room) * (s.embedding + s.output)) / (s.attention + s.mlp || 1)));
  return (
    <svg class="map-small" width={width} height={most} viewBox={`0 0 ${width} ${drawn.height}`} preserveAspectRatio="none" aria-hidden="true">
      <Boxes of={drawn} lit={step === null ? null : about[step] ?? null} />
    </svg>
  );
}

/** The end of the prompt and what the model expects next, on one line. */
export function AnswerLine() {
  // On a live page of the prompt and the model as they are now, as in the dock.
  const { plain, changed } = useLive();
  const next = vitrine.pictures["next-tokens"];
  const last = vitrine.tokens.length - 1;
  const best = (of: Next | null) => (of?.next[0] === undefined ? null : { name: named(of.next[0].piece, of.next[0].token), prob: of.next[0].prob });
  const made = next === undefined || !next.available ? null : { name: spelling(next.ids[last]![0]!), prob: next.probs[last]![0]! };
  const [before, after] = [best(plain) ?? made, best(changed)];
  const now = after ?? before;
  if (now === null) return null;
  return (
    <span class="answer-line">
      <bdi>{short(plain === null ? tokenAt(last) : named(plain.pieces.at(-1), plain.tokens.at(-1)!), 14)}</bdi> → <b><bdi>{short(now.name, 14)}</bdi></b> {percent(now.prob)}
      {after !== null && before !== null && <small class="answer-was"> was {after.name === before.name ? "" : <><bdi>{short(before.name, 10)}</bdi> </>}{percent(before.prob)}</small>}
    </span>
  );
}
