// Rotary positions: a vector turned position by position, how long each turn takes, and which pairs a head uses.

import { useMemo, useState } from "preact/hooks";
import { logDomain } from "../axes";
import { Slider } from "../controls";
import type { QueryLength, RopeRotation, RopeWavelengths } from "../data";
import { floats } from "../decode";
import { vitrine } from "../document";
import { count, exact, number, px } from "../format";
import { Heat, ScaleKey } from "../heat";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";
import { XyChart, type Rule } from "../xychart";
import type { Entry } from "./entry";

function Rotation({ picture: p }: { picture: RopeRotation }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const last = (p.components[0]?.points.length ?? 1) - 1;
  const [shift, set] = useState(0);
  const perRow = width > 460 ? p.components.length : 1;
  const size = Math.min(Math.floor((width - 16 * (perRow - 1)) / perRow), 330);
  return (
    <div ref={box}>
      {width > 0 && (
        <div class="planes">
          {p.components.map((c) => <Circle key={c.component} component={c} size={size} shift={shift} />)}
        </div>
      )}
      <Slider label="Move all positions along by" min={0} max={24} value={shift} onChange={set} says={`${shift}: k₀ stands at position ${shift}; the angles between the vectors stay`} />
      <p class="remark">
        At frequency {number(p.components[0]?.frequency)}: k₀ · k₁ = {number(p.dot[0]?.[1], 4)}
        {last >= 2 && <>, k₁ · k₂ = {number(p.dot[1]?.[2], 4)}, k₀ · k₂ = {number(p.dot[0]?.[2], 4)}</>}. Only the distance counts.
      </p>
    </div>
  );
}

function Circle({ component: c, size, shift }: { component: RopeRotation["components"][number]; size: number; shift: number }) {
  const middle = size / 2;
  const radius = middle - 34;
  // Moving by `shift` positions turns every vector by the same further angle.
  const turned = c.points.map(([x, y]) => {
    const angle = Math.atan2(y, x) + shift * c.frequency;
    return [Math.cos(angle), Math.sin(angle)] as const;
  });
  const marks: Mark[] = turned.map(([x, y], i) => ({
    x: middle + x * radius,
    y: middle - y * radius,
    series: 0,
    text: `k${i}, position ${i + shift}\n(${exact(x)}, ${exact(y)})\nangle ${number((i + shift) * c.frequency, 5)} radians`,
  }));
  return (
    <div class="plane" style={{ width: px(size) }}>
      <p class="panel-title">pair {c.component} of {c.of}: frequency {number(c.frequency, 4)}, once round in {number(c.wavelength, 4)} tokens</p>
      <Drawing label={`The vector (1, 0) at positions 0 to ${turned.length - 1}, turned with frequency ${number(c.frequency, 4)}.`} width={size} height={size} marks={marks} reach={40}>
        <circle class="guide" cx={middle} cy={middle} r={radius} />
        {turned.map(([x, y], i) => (
          <g key={i}>
            <line class="vector attention" style={{ opacity: 1 - (0.6 * i) / Math.max(1, turned.length - 1) }} x1={middle} y1={middle} x2={middle + x * radius} y2={middle - y * radius} />
            <circle class="to" cx={middle + x * radius} cy={middle - y * radius} r={4} />
            <text x={middle + x * (radius + 17)} y={middle - y * (radius + 17)} dy="0.34em" text-anchor="middle">k<tspan class="sub" dy="3">{i}</tspan></text>
          </g>
        ))}
      </Drawing>
    </div>
  );
}

export const ropeRotation: Entry<"rope-rotation"> = {
  made: ["toy"],
  draw: Rotation,
  table: (p) => ({
    columns: ["pair", "frequency", "wavelength", "position", "x", "y"],
    rows: p.components.flatMap((c) => c.points.map(([x, y], i) => [c.component, c.frequency, c.wavelength, i, x, y])),
  }),
};

function Wavelengths({ picture: p }: { picture: RopeWavelengths }) {
  const chart = useMemo(() => {
    const windows = [...new Set(vitrine.model.windows)].filter((w) => w > 0);
    const rules: Rule[] = [
      ...(p.contextLength > 0 ? [{ y: p.contextLength, label: `context: ${count(p.contextLength)} tokens` }] : []),
      ...windows.map((w) => ({ y: w, label: `window: ${count(w)} tokens` })),
    ];
    return {
      x: { label: "pair of components", domain: [0, p.wavelengths.length - 1] as const },
      y: { label: "wavelength, tokens, log", domain: logDomain([...p.wavelengths, ...rules.map((r) => r.y)], 1.6), log: true },
      rules,
      series: [{
        name: "wavelength", tone: "attention", draw: "both" as const, named: false,
        points: p.wavelengths.map((y, x) => ({ x, y, text: `pair ${x}\nwavelength ${exact(y)} tokens\nfrequency ${exact(p.frequencies[x])}` })),
      }],
    };
  }, [p]);
  return (
    <>
      <XyChart label="Wavelength of each rotating pair of components." {...chart} right={20} height={300} />
      <p class="remark">
        θ = {count(p.theta)}{p.scaling === "none" ? "" : `, stretched: ${p.scaling}`}.{" "}
        {p.firstBeyondContext === null ? "No pair turns more slowly than once in the context." : `From pair ${p.firstBeyondContext} on, a turn takes longer than the whole context.`}
      </p>
    </>
  );
}

export const ropeWavelengths: Entry<"rope-wavelengths"> = {
  made: ["model"],
  draw: Wavelengths,
  table: (p) => ({ columns: ["pair", "frequency", "wavelength"], rows: p.wavelengths.map((w, i) => [i, p.frequencies[i]!, w]) }),
};

function Lengths({ picture: p }: { picture: QueryLength }) {
  const [layer, set] = useState(p.shown.at(-1) ?? 0);
  const first = p.shown[0] ?? 0;
  return (
    <>
      <LayerLengths picture={p} layer={first} />
      {p.layers.length > 1 && (
        <>
          <Slider label="Second panel" min={0} max={p.layers.length - 1} value={layer} onChange={set} says={`layer ${layer}`} />
          <LayerLengths picture={p} layer={layer} />
        </>
      )}
      <p class="remark">Each layer has a scale of its own: compare heads and wavelengths within it.</p>
    </>
  );
}

function LayerLengths({ picture: p, layer }: { picture: QueryLength; layer: number }) {
  const packed = p.layers[layer]!;
  const [heads = 0, pairs = 0] = packed.shape;
  const { value, most } = useMemo(() => {
    const all = floats(packed);
    return { value: (row: number, col: number) => all[row * pairs + col]!, most: all.reduce((a, b) => Math.max(a, b), 1e-30) };
  }, [packed, pairs]);
  const ticks = useMemo(() => {
    const wanted = [10 ** 0, 10, 100, 1000, 1e4, 1e5, 1e6].map((turn) => 2 * Math.PI * turn);
    const found = wanted.flatMap((target) => {
      const at = p.wavelengths.findIndex((w) => w >= target * 0.999);
      return at < 0 ? [] : [{ at, text: count(Math.floor(p.wavelengths[at]!)) }];
    });
    return found;
  }, [p]);
  return (
    <>
      <p class="row-title">Layer {layer}</p>
      <Heat
        label={`Length of the query vectors of layer ${layer} by head and wavelength.`}
        rows={heads}
        cols={pairs}
        value={value}
        scale="sequential"
        most={most}
        rowNames={Array.from({ length: heads }, (_, head) => `head ${head}`)}
        colNames={[]}
        tall={heads > 16 ? 14 : 22}
        cell={60}
        bottomTicks={ticks}
        bottomTitle="wavelength, tokens"
        describe={(head, pair) => `layer ${layer}, head ${head}\nwavelength ${number(p.wavelengths[pair], 5)} tokens\nlength ${exact(value(head, pair))}`}
      />
      <ScaleKey scale="sequential" label={`length of q in layer ${layer}, mean of ${count(p.nTokens)} tokens`} low="0" high={number(most)} />
    </>
  );
}

export const queryLength: Entry<"query-length"> = {
  made: ["run"],
  draw: Lengths,
  wide: true,
  table: (p) => ({
    columns: ["layer", "head", ...p.wavelengths.map((w, i) => `${i}: ${number(w, 4)}`)],
    rows: p.layers.flatMap((packed, layer) => {
      const all = floats(packed);
      const pairs = p.wavelengths.length;
      return Array.from({ length: packed.shape[0]! }, (_, head) => [layer, head, ...all.subarray(head * pairs, (head + 1) * pairs)]);
    }),
    note: "Columns: rotating pairs with their wavelengths in tokens.",
  }),
};
