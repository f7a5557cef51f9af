// Norms: what one does to a vector of two numbers, and what enters and leaves every norm of this run.

import { axis } from "../axes";
import type { NormGeometry } from "../data";
import { exact, number, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing } from "../marks";

type Pair = readonly [number, number];

interface Stage {
  title: string;
  /** From where to where the vector goes at this stage. */
  from: Pair | null;
  to: Pair;
}

/** One plane with the vector, the way it came, and what the stage leaves fixed. */
function Plane({ stage, size, low, high, circle }: { stage: Stage; size: number; low: number; high: number; circle: boolean }) {
  const margin = 18;
  const x = axis({ label: "", domain: [low, high] }, margin, size - margin);
  const y = axis({ label: "", domain: [low, high] }, size - margin, margin);
  const at = (v: Pair) => [x(v[0]), y(v[1])] as const;
  const [tx, ty] = at(stage.to);
  const from = stage.from === null ? null : at(stage.from);
  const say = `(${number(stage.to[0], 4)}, ${number(stage.to[1], 4)})`;
  const leftward = stage.to[0] < 0 && tx > 64;  // away from the axis, where there is room
  const under = ty < 30 || (from !== null && from[0] < tx && from[1] < ty);  // the way comes from above
  const radius = x(Math.SQRT2) - x(0);
  const marks = [
    { x: tx, y: ty, series: 0, text: `${stage.title}\n(${exact(stage.to[0])}, ${exact(stage.to[1])})` },
    ...(from === null ? [] : [{ x: from[0], y: from[1], series: 0, text: `before\n(${exact(stage.from![0])}, ${exact(stage.from![1])})` }]),
  ];
  return (
    <div class="plane" style={{ width: px(size) }}>
      <p class="panel-title">{stage.title}</p>
      <Drawing label={`${stage.title}: ${say}.`} width={size} height={size} marks={marks} reach={400}>
        <line class="base" x1={x(low)} x2={x(high)} y1={y(0)} y2={y(0)} />
        <line class="base" x1={x(0)} x2={x(0)} y1={y(low)} y2={y(high)} />
        <line class="guide" x1={x(low)} y1={y(-low)} x2={x(-low)} y2={y(low)} />
        {circle && <circle class="guide" cx={x(0)} cy={y(0)} r={radius} />}
        {from !== null && <line class="way" x1={from[0]} y1={from[1]} x2={tx} y2={ty} />}
        {from !== null && <circle class="from" cx={from[0]} cy={from[1]} r={4} />}
        <line class="vector attention" x1={x(0)} y1={y(0)} x2={tx} y2={ty} />
        <circle class="to" cx={tx} cy={ty} r={5} />
        <text class="halo" x={leftward ? tx - 9 : stage.to[0] < 0 ? Math.max(tx - 22, 2) : Math.min(tx + 9, size - say.length * 6.9)} y={under ? ty + 18 : ty - 9} text-anchor={leftward ? "end" : "start"}>{say}</text>
      </Drawing>
    </div>
  );
}

export function Geometry({ picture: p }: { picture: NormGeometry }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const rows: { name: string; model: boolean; stages: Stage[] }[] = [
    {
      name: "LayerNorm",
      model: p.model === "layer_norm",
      stages: [
        { title: "x", from: null, to: p.x },
        { title: `x − mean, mean ${number(p.mean)}`, from: p.x, to: p.centered },
        { title: `÷ σ, σ ${number(p.sigma)}`, from: p.centered, to: p.scaled },
        { title: "× weight + bias", from: p.scaled, to: p.layerNorm },
      ],
    },
    {
      name: "RMSNorm",
      model: p.model === "rms_norm",
      stages: [
        { title: "x", from: null, to: p.x },
        { title: `÷ rms, rms ${number(p.rms)}`, from: p.x, to: p.rmsScaled },
        { title: "× weight", from: p.rmsScaled, to: p.rmsNorm },
      ],
    },
  ];
  rows.sort((a, b) => Number(b.model) - Number(a.model));
  const all = [...p.x, ...p.centered, ...p.layerNorm, ...p.rmsNorm];
  const [low, high] = [Math.floor(Math.min(...all)) - 0.5, Math.ceil(Math.max(...all)) + 0.5];
  const perRow = width > 600 ? 4 : 2;
  const size = Math.floor((width - (perRow - 1) * 12) / perRow);
  return (
    <div ref={box}>
      {width > 0 && rows.map((row) => (
        <div key={row.name}>
          <p class="row-title">{row.name}{row.model && <em> · in this model</em>}</p>
          <div class="planes">{row.stages.map((stage, i) => <Plane key={i} stage={stage} size={size} low={low} high={high} circle={i >= (row.name === "RMSNorm" ? 1 : 2)} />)}</div>
        </div>
      ))}
      <p class="remark">
        weight ({p.weight.map((v) => number(v)).join(", ")}), bias ({p.bias.map((v) => number(v)).join(", ")}). The dashed diagonal holds all vectors of mean 0, the dashed
        circle all of root mean square 1. In three numbers: ({p.three.x.map((v) => number(v)).join(", ")}) has mean {number(p.three.mean)} and variance {number(p.three.variance, 4)}, and
        becomes ({p.three.scaled.map((v) => number(v, 5)).join(", ")}).
      </p>
    </div>
  );
}
