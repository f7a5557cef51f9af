// Charts over the layers: a value of each tensor, or rows of values of each layer.

import { useMemo, useState } from "preact/hooks";
import { linearDomain } from "../axes";
import { Choice } from "../controls";
import type { Table } from "../figure";
import { exact, number, plural, short } from "../format";
import { Heat, ScaleKey } from "../heat";
import { XyChart, type Series } from "../xychart";
import type { MergeTensor } from "./data";
import { kindOf, kinds, known, layers, tensorsOf, type Part } from "./quantities";

const first = layers[0] ?? 0;
const last = layers.at(-1) ?? 0;
const layerAxis = {
  label: "layer",
  domain: [first - 0.5, last + 0.5] as const,
  ticks: layers.filter((layer) => (layer - first) % Math.ceil((last - first + 1) / 20) === 0),
  format: String,
};

interface ByTensorProps {
  label: string;
  axis: string;
  value: (t: MergeTensor) => number;
  write?: (value: number) => string;
  /** The low end of the axis; the smallest value where it is left out. */
  from?: number;
  to?: number;
}

/** A dot for each value that tensors of a layer have, and lines through the means of attention, MLP and the others. */
export function ByTensor({ label, axis, value, write = exact, from, to }: ByTensorProps) {
  const chart = useMemo(() => {
    const all: number[] = [];
    const series = kinds.flatMap((kind, k): Series[] => {
      const dots: Series["points"][number][] = [];
      const means = layers.map((layer) => {
        // Tensors with one value share a dot.
        const at = new Map<number, string[]>();
        for (const t of tensorsOf(layer, kind.value)) {
          const v = value(t);
          if (known(v)) at.set(v, [...(at.get(v) ?? []), t.name]);
        }
        for (const [v, names] of at) dots.push({ x: layer + (k - 1) * 0.12, y: v, text: `layer ${layer}, ${kind.name}: ${write(v)}\n${names.slice(0, 4).join("\n")}${names.length > 4 ? `\nand ${names.length - 4} more` : ""}` });
        const values = [...at].flatMap(([v, names]) => names.map(() => v));
        all.push(...values);
        const mean = values.length === 0 ? NaN : values.reduce((a, b) => a + b, 0) / values.length;
        return { x: layer, y: mean, text: `layer ${layer}, ${kind.name}\nmean of ${plural(values.length, "tensor")}: ${write(mean)}` };
      });
      if (dots.length === 0) return [];
      return [
        { name: kind.name, tone: kind.tone, draw: "line", points: means },
        { name: `${kind.name}, by tensor`, tone: `${kind.tone} small`, draw: "dots", named: false, points: dots },
      ];
    });
    const [low, high] = linearDomain(all, from);
    return { x: layerAxis, y: { label: axis, domain: [low, to ?? high] as const }, series };
  }, [axis, value, write, from, to]);
  return <XyChart label={label} {...chart} height={260} right={84} />;
}

export function tensorRows(column: string, value: (t: MergeTensor) => number, tensors: readonly MergeTensor[]): Table {
  return {
    columns: ["tensor", "layer", "part", column],
    rows: tensors.filter((t) => known(value(t))).map((t) => [t.name, t.layer < 0 ? "none" : t.layer, t.layer < 0 ? "none" : kinds.find((kind) => kind.value === kindOf(t.name))!.name, value(t)]),
  };
}

export interface Row {
  name: string;
  /** The name in the note of a value, where it is longer. */
  title?: string;
  /** Of a layer, or of one part of it. */
  value: (tensors: readonly MergeTensor[]) => number;
  /** The result beside the inputs. */
  strong?: boolean;
}

interface ByLayerProps {
  label: string;
  axis: string;
  rows: readonly Row[];
  /** Values of both signs: colors go both ways from 0. */
  diverging?: boolean;
  write?: (value: number) => string;
  /** The end of the scale (of both ends, when diverging); the largest value where it is left out. */
  to?: number;
}

const tones = ["attention", "mlp", "third", "plain"];
const lines = tones.length;

/** Lines for a few rows, a grid of colors for more; of whole layers or of one part of each. */
export function ByLayer({ label, axis, rows, diverging = false, write = exact, to }: ByLayerProps) {
  const [part, choose] = useState<Part>("all");
  const parts = useMemo(() => kinds.filter((kind) => layers.some((layer) => rows.some((row) => known(row.value(tensorsOf(layer, kind.value)))))), [rows]);
  const values = useMemo(() => rows.map((row) => layers.map((layer) => row.value(tensorsOf(layer, part)))), [rows, part]);
  const finite = values.flat().filter(known);
  const most = to ?? Math.max(1e-30, ...finite.map(Math.abs));
  const where = part === "all" ? "" : `, ${kinds.find((kind) => kind.value === part)!.name}`;
  const chart = useMemo(() => ({
    x: layerAxis,
    y: { label: axis, domain: (diverging ? linearDomain([0, ...finite]) : [0, to ?? most * 1.05]) as readonly [number, number] },
    series: rows.map((row, i): Series => ({
      name: short(row.name, 16),
      tone: row.strong === true ? "plain strong" : tones[i]!,
      dashed: row.strong === true,
      draw: "both",
      points: layers.map((layer, at) => ({ x: layer, y: values[i]![at]!, text: `${row.title ?? row.name}\nlayer ${layer}${where}: ${write(values[i]![at]!)}` })),
    })),
  }), [rows, values, axis]);
  return (
    <>
      {parts.length > 1 && <Choice label="Of each layer" options={[{ value: "all" as Part, name: "everything" }, ...parts]} value={part} onChange={choose} />}
      {rows.length <= lines
        ? <XyChart label={label} {...chart} height={280} right={130} />
        : (
          <>
            <Heat
              label={label}
              rows={rows.length}
              cols={layers.length}
              value={(row, col) => (known(values[row]![col]!) ? values[row]![col]! : null)}
              scale={diverging ? "diverging" : "sequential"}
              most={most}
              rowNames={rows.map((row) => row.name)}
              colNames={[]}
              describe={(row, col) => `${rows[row]!.title ?? rows[row]!.name}\nlayer ${layers[col]!}${where}: ${known(values[row]![col]!) ? write(values[row]![col]!) : "not known"}`}
              cell={40}
              tall={rows.length > 20 ? 14 : 22}
              bottomTicks={layers.flatMap((layer, at) => (at % Math.ceil(layers.length / 10) === 0 ? [{ at, text: String(layer) }] : []))}
              bottomTitle="layer"
            />
            <ScaleKey scale={diverging ? "diverging" : "sequential"} low={diverging ? number(-most) : "0"} high={number(most)} label={axis} />
          </>
        )}
    </>
  );
}

/** Every row by layer. */
export function layerRows(rows: readonly Row[]): Table {
  return {
    columns: ["layer", ...rows.map((row) => row.title ?? row.name)],
    rows: layers.map((layer) => [layer, ...rows.map((row) => {
      const value = row.value(tensorsOf(layer, "all"));
      return known(value) ? value : null;
    })]),
  };
}
