// Two models layer by layer, and curves of a loss over ranges.

import { useMemo } from "preact/hooks";
import { linearDomain, logDomain } from "../axes";
import { Figure } from "../figure";
import { exact, number, percent, plural } from "../format";
import { XyChart, type Series } from "../xychart";
import type { CurvesData, LayersData } from "./data";

export function Layers({ p }: { p: LayersData }) {
  const chart = useMemo(() => {
    const x = { label: "layer", domain: [-1, Math.max(0, p.points.at(-1)!.layer)] as const, ticks: p.points.map((point) => point.layer), format: (v: number) => (v < 0 ? "start" : String(v)) };
    const line = (name: string, tone: string, value: (point: LayersData["points"][number]) => number | null, say: (point: LayersData["points"][number]) => string): Series => ({
      name, tone, draw: "both", points: p.points.map((point) => ({ x: point.layer, y: value(point) ?? NaN, text: `${point.name}\n${say(point)}` })),
    });
    const stream = [
      line("mean", "plain", (point) => point.distance, (point) => `1 − cosine ${exact(point.distance)}, mean over the positions`),
      line("largest", "mlp", (point) => point.largest, (point) => `1 − cosine ${exact(point.largest)} at position ${point.position}`),
    ];
    const attention = [
      line("mean", "plain", (point) => point.attention, (point) => `${percent(point.attention ?? 0)} of a query's attention moved, mean`),
      line("most", "attention", (point) => point.attentionMost, (point) => `${percent(point.attentionMost ?? 0)} moved in head ${point.head}, query at position ${point.query}`),
    ];
    return { x, stream, attention };
  }, [p]);
  const worst = p.points.reduce((a, b) => (b.largest > a.largest ? b : a));
  const values = (series: readonly Series[]) => series.flatMap((one) => one.points.map((point) => point.y)).filter(Number.isFinite);
  return (
    <>
      <p>Both models read the same tokens, so their residual streams can be compared layer by layer. The cosine says how far the directions agree; the attention that moved says how much the heads look elsewhere.</p>
      <Figure
        name="layers"
        wide={false}
        alone={false}
        made={["run"]}
        title="Where the two part"
        alt={`Largest at ${worst.name}: 1 − cosine ${number(worst.largest)} at position ${worst.position}.`}
        caption="Above: 1 − cosine of the two residual streams, before the first layer (start) and after each. Below: the share of a query's attention that is on other tokens in the second model."
        table={() => ({ columns: ["point", "1 − cosine", "largest", "at position", "relative", "attention moved", "most"], rows: p.points.map((point) => [point.name, point.distance, point.largest, point.position, point.relative, point.attention, point.attentionMost]) })}
      >
        <XyChart label="Distance of the residual streams by layer." x={chart.x} y={{ label: "1 − cosine", domain: linearDomain(values(chart.stream), 0) }} series={chart.stream} height={230} />
        <XyChart label="Attention that moved, by layer." x={chart.x} y={{ label: "share of attention", domain: linearDomain(values(chart.attention), 0) }} series={chart.attention} height={230} />
      </Figure>
    </>
  );
}

const tones = ["attention", "mlp"];

export function Curves({ p, name }: { p: CurvesData; name: string }) {
  const chart = useMemo(() => {
    const middle = (from: number, to: number) => (from === 0 ? 0.5 : Math.sqrt(from * to));
    const series = p.curves.map((curve, i): Series => ({
      name: p.curves.length > 1 ? curve.name.split("/").at(-1)! : "",
      tone: tones[i] ?? "plain",
      draw: "both",
      points: curve.ranges.map((range) => ({ x: middle(range.from, range.to), y: range.value, text: `${range.from === range.to ? range.from : `${range.from} to ${range.to}`} ${p.axis}\n−ln p ${exact(range.value)}, ${plural(range.tokens, "token")}` })),
    }));
    const points = series.flatMap((one) => one.points);
    return { x: { label: p.axis, domain: logDomain(points.map((point) => point.x)), log: true }, y: { label: "−ln p", domain: linearDomain(points.map((point) => point.y), 0) }, series };
  }, [p]);
  const first = p.curves[0]!.ranges;
  return (
    <Figure
      name={name}
      wide={false}
      alone={false}
      made={["run"]}
      title={p.title}
      alt={`Mean loss from ${number(first[0]?.value)} to ${number(first.at(-1)?.value)}.`}
      caption={`Mean of −ln p by ${p.axis}, in ranges that double.`}
      table={() => ({ columns: ["model", "from", "to", "tokens", "-ln p"], rows: p.curves.flatMap((curve) => curve.ranges.map((range) => [curve.name, range.from, range.to, range.tokens, range.value])) })}
    >
      <XyChart label={`Loss by ${p.axis}.`} {...chart} height={230} right={p.curves.length > 1 ? 110 : 20} />
    </Figure>
  );
}
