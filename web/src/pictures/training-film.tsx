// A training run as a film: at each checkpoint the loss, a sampled text, one head's attention and the embeddings of some words.

import { useMemo, useState } from "preact/hooks";
import { axis, LeftAxis, BottomAxis } from "../axes";
import { Bars } from "../bars";
import { Slider } from "../controls";
import type { TrainingFilm } from "../data";
import { count, exact, number, percent, piece, px, spaceMark } from "../format";
import { Heat } from "../heat";
import { useWidth } from "../hooks";
import { Drawing } from "../marks";
import { XyChart, type Series } from "../xychart";

const tones = ["attention", "mlp", "third", "plain"];

export function Film({ picture: p }: { picture: TrainingFilm }) {
  const last = p.checkpoints.length - 1;
  const [at, set] = useState(last);
  const now = p.checkpoints[at]!;
  const pieces = useMemo(() => {
    const space = spaceMark(p.watched.pieces);
    return p.watched.pieces.map((text) => piece(text, space));
  }, [p]);
  const attention = (row: number, col: number) => (col > row ? null : now.attention[row]![col]!);
  return (
    <div class="film">
      <Slider label="Checkpoint" min={0} max={last} value={at} onChange={set} says={`step ${count(now.step)}, ${count(now.tokens)} tokens read, validation loss ${number(now.valLoss, 4)}`} />
      <Losses p={p} at={at} choose={set} />
      <p class="row-title">“{p.beginning}”, continued at step {count(now.step)}</p>
      <blockquote class="sampled"><bdi>{p.beginning}</bdi><bdi>{now.sample}</bdi></blockquote>
      <p class="row-title">Attention of layer {p.watched.layer}, head {p.watched.head}: {percent(now.previous)} on the token before</p>
      <Heat
        label={`Attention of one head at step ${now.step}.`}
        rows={pieces.length}
        cols={pieces.length}
        value={attention}
        scale="sequential"
        most={1}
        rowNames={pieces}
        colNames={pieces}
        cell={26}
        tall={18}
        describe={(row, col) => `from ${pieces[row]} (position ${row}) to ${pieces[col]} (position ${col})\nweight ${exact(attention(row, col) ?? 0)} at step ${now.step}`}
      />
      <p class="row-title">Embeddings of some words</p>
      <Words p={p} at={at} />
      <p class="row-title">Root mean square of each kind of parameter at step {count(now.step)}</p>
      <Bars
        label={`Sizes of the parameters at step ${now.step}.`}
        most={Math.max(...p.checkpoints.flatMap((one) => Object.entries(one.parts).filter(([name]) => !isGain(name)).map(([, size]) => size[0])))}
        bars={Object.entries(now.parts).filter(([name]) => !isGain(name)).map(([name, size]) => ({
          name,
          value: size[0],
          tone: "attention",
          note: number(size[0]),
          text: `${name} at step ${now.step}\nroot mean square ${exact(size[0])}\nmean ${exact(size[1])}\nat step 0 ${exact(p.checkpoints[0]!.parts[name]![0])}`,
        }))}
      />
    </div>
  );
}

/** The weights of norms begin at 1; beside them nothing else could be seen. */
function isGain(name: string): boolean {
  return name.startsWith("ln") && name.endsWith(".w");
}

function Losses({ p, at, choose }: { p: TrainingFilm; at: number; choose: (at: number) => void }) {
  // A log axis has no 0: the checkpoint before the first step stands at 1/2.
  const place = (step: number) => Math.max(step, 0.5);
  const series: Series[] = [
    { name: "training", tone: "plain", draw: "line", points: p.losses.map(([step, loss]) => ({ x: step, y: loss, text: `up to step ${count(step)}\ntraining loss ${exact(loss)}` })) },
    { name: "validation", tone: "attention", draw: "both", points: p.checkpoints.map((one, i) => ({ x: place(one.step), y: one.valLoss, text: `step ${count(one.step)}\nvalidation loss ${exact(one.valLoss)}`, pick: () => choose(i) })) },
    { name: "shown", named: false, tone: "mlp", draw: "dots", points: [{ x: place(p.checkpoints[at]!.step), y: p.checkpoints[at]!.valLoss, text: `step ${count(p.checkpoints[at]!.step)}, shown below` }] },
  ];
  const values = [...p.losses.map(([, loss]) => loss), ...p.checkpoints.map((one) => one.valLoss)];
  return (
    <XyChart
      label="Loss of the run by step; a click on a checkpoint shows it."
      x={{ label: "step, log (the first point is step 0)", domain: [0.4, p.checkpoints.at(-1)!.step * 1.1], log: true, format: (v) => (v < 1 ? "" : count(v)) }}
      y={{ label: "loss in nats", domain: [Math.floor(Math.min(...values)), Math.ceil(Math.max(...values))] }}
      series={series}
      height={240}
    />
  );
}

function Words({ p, at }: { p: TrainingFilm; at: number }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const groups = [...new Set(p.words.map((word) => word.group))];
  const places = p.checkpoints.flatMap((one) => one.embeddings);
  const height = Math.min(width, 420);
  const reach = (i: 0 | 1): [number, number] => [Math.min(...places.map((place) => place[i])), Math.max(...places.map((place) => place[i]))];
  const x = axis({ label: `first direction, ${percent(p.planeShares[0])} of the variance at the end`, domain: reach(0) }, 52, width - 60);
  const y = axis({ label: `second, ${percent(p.planeShares[1])}`, domain: reach(1) }, height - 44, 30);
  const now = p.checkpoints[at]!;
  const marks = p.words.map((word, i) => ({ x: x(now.embeddings[i]![0]), y: y(now.embeddings[i]![1]), series: groups.indexOf(word.group), text: `${word.word}\n${word.group}\nat (${exact(now.embeddings[i]![0])}, ${exact(now.embeddings[i]![1])})` }));
  return (
    <div ref={box} style={{ minHeight: px(320) }}>
      {width > 0 && (
        <Drawing label={`Embeddings of ${p.words.length} words at step ${now.step}, on the plane on which the trained ones vary most.`} width={width} height={height} marks={marks}>
          <LeftAxis axis={y} x={52} from={14} to={width - 60} />
          <BottomAxis axis={x} y={height - 44} from={52} to={width - 60} />
          {p.words.map((word, i) => (
            <g key={word.id} class={`series ${tones[groups.indexOf(word.group) % tones.length]}`}>
              <circle cx={marks[i]!.x} cy={marks[i]!.y} r={3} />
              <text class="halo" x={marks[i]!.x + 6} y={marks[i]!.y} dy="0.32em">{word.word}</text>
            </g>
          ))}
        </Drawing>
      )}
    </div>
  );
}
