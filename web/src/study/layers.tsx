// Two models layer by layer, and curves of a loss over ranges.

import { useMemo } from "preact/hooks";
import { linearDomain, logDomain } from "../axes";
import { Figure } from "../figure";
import { exact, number, percent, plural } from "../format";
import type { CurvesData, LayersData, StreamDifference } from "../results";
import { XyChart, type Series } from "../xychart";

/** -1: the embedding. */
const layerOf = (point: StreamDifference) => point.layer ?? -1;
const distanceOf = (point: StreamDifference) => 1 - point.cosine;
/** Mean and largest share of attention that moved, which the embedding has not. */
const movedIn = (point: StreamDifference) => (point.layer === null ? [null, null] : [point.attention_mean, point.attention_most]);

export function Layers({ p }: { p: LayersData }) {
  const chart = useMemo(() => {
    const x = { label: "layer", domain: [-1, Math.max(0, layerOf(p.points.at(-1)!))] as const, ticks: p.points.map(layerOf), format: (v: number) => (v < 0 ? "start" : String(v)) };
    const line = (name: string, tone: string, value: (point: StreamDifference) => number | null, say: (point: StreamDifference) => string): Series => ({
      name, tone, draw: "both", points: p.points.map((point) => ({ x: layerOf(point), y: value(point) ?? NaN, text: `${point.point}\n${say(point)}` })),
    });
    const stream = [
      line("mean", "plain", distanceOf, (point) => `1 − cosine ${exact(distanceOf(point))}, mean over the positions`),
      line("largest", "mlp", (point) => point.distance, (point) => `1 − cosine ${exact(point.distance)} at position ${point.worst_position}`),
    ];
    const attention = [
      line("mean", "plain", (point) => movedIn(point)[0]!, (point) => `${percent(movedIn(point)[0] ?? 0)} of a query's attention moved, mean`),
      line("most", "attention", (point) => movedIn(point)[1]!, (point) => `${percent(movedIn(point)[1] ?? 0)} moved in head ${point.attention_head}, query at position ${point.attention_query}`),
    ];
    return { x, stream, attention };
  }, [p]);
  const worst = p.points.reduce((a, b) => (b.distance > a.distance ? b : a));
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
        alt={`Largest at ${worst.point}: 1 − cosine ${number(worst.distance)} at position ${worst.worst_position}.`}
        caption="Above: 1 − cosine of the two residual streams, before the first layer (start) and after each. Below: the share of a query's attention that is on other tokens in the second model."
        table={() => ({ columns: ["point", "1 − cosine", "largest", "at position", "relative", "attention moved", "most"], rows: p.points.map((point) => [point.point, distanceOf(point), point.distance, point.worst_position, point.relative, ...movedIn(point)]) })}
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
