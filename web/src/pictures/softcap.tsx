// cap · tanh(s / cap): the curve, and how much of this run it touches.

import { useMemo, useState } from "preact/hooks";
import type { SoftCap } from "../data";
import { exact, number, percent } from "../format";
import { Heat, ScaleKey } from "../heat";
import { MadeOf } from "../made";
import { Reproduce, type Reproduction } from "../recipe";
import { headOff } from "../recipes";
import { XyChart, type Series } from "../xychart";
import type { Entry } from "./entry";

/** Beyond six caps the capped number no longer tells what it was. */
const atLeast = (largest: number, cap: number) => (largest >= 5.9994 * cap ? "at least " : "");

function Cap({ picture: p }: { picture: SoftCap }) {
  const [picked, pick] = useState<Reproduction | null>(null);
  const curve = useMemo(() => {
    const line: Series = {
      name: "capped", tone: "attention", draw: "line",
      points: p.curve.x.map((x, i) => ({ x, y: p.curve.y[i]!, text: `score ${exact(x)} × cap\nbecomes ${exact(p.curve.y[i])} × cap` })),
    };
    const straight: Series = { name: "as it was", tone: "plain", draw: "line", dashed: true, points: [-1.25, 1.25].map((v) => ({ x: v, y: v, text: `score ${v} × cap, uncapped` })) };
    const cap = p.example.cap;
    const dots: Series = {
      name: "example", tone: "mlp", draw: "dots", named: false,
      points: p.example.x.map((x, i) => ({ x: x / cap, y: p.example.y[i]! / cap, text: `with cap ${number(cap)}\n${exact(x)} becomes ${exact(p.example.y[i])}` })),
    };
    return { series: [line, straight, dots], cap };
  }, [p]);
  const attention = p.attention;
  const most = attention === null ? 1 : Math.max(...attention.changed.flat(), 1e-9);
  const value = useMemo(() => (row: number, col: number) => attention?.changed[row]?.[col] ?? 0, [attention]);
  return (
    <>
      <p class="row-title">The bend <MadeOf of="toy" /></p>
      <XyChart
        label="The soft cap: the hyperbolic tangent, in units of the cap."
        x={useMemo(() => ({ label: "score, in caps", domain: [-4, 4] as const }), [])}
        y={useMemo(() => ({ label: "capped score, in caps", domain: [-1.25, 1.25] as const, ticks: [-1, -0.5, 0, 0.5, 1] }), [])}
        series={curve.series}
        height={320}
      >
        {(x, y) => p.example.x.map((v, i) => (
          <text key={v} class="name mlp" x={x(v / curve.cap) + 12} y={y(p.example.y[i]! / curve.cap) + 15}>{number(v)} → {number(p.example.y[i]!)}</text>
        ))}
      </XyChart>
      <p class="remark">Orange: a cap of {number(curve.cap)}, and what becomes of the scores {p.example.x.map((x) => number(x)).join(", ")}.</p>
      {attention !== null && (
        <>
          <p class="row-title">Share of the scores that the cap of {number(attention.cap)} changes by more than 1 % <MadeOf of="run" /></p>
          <Heat
            label="Share of attention scores changed by the cap, by layer and head."
            rows={attention.changed.length}
            cols={attention.changed[0]?.length ?? 0}
            value={value}
            scale="sequential"
            most={most}
            rowNames={attention.changed.map((_, layer) => `layer ${layer}`)}
            colNames={attention.changed[0]?.map((_, head) => `head ${head}`) ?? []}
            cell={72}
            tall={26}
            write={percent}
            picks="how to switch the head off"
            onPick={(layer, head) => pick(headOff(layer, head))}
            describe={(layer, head) =>
              `layer ${layer}, head ${head}\nchanged by more than 1 %: ${percent(attention.changed[layer]![head]!)}\nbeyond half the cap: ${percent(attention.beyondHalf[layer]![head]!)}\nlargest |score| ${atLeast(attention.largest[layer]![head]!, attention.cap)}${exact(attention.largest[layer]![head])}`}
          />
          {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
          <ScaleKey scale="sequential" label="share" low="0 %" high={percent(most)} />
        </>
      )}
      {p.final !== null && (
        <p class="remark">
          The final logits are capped at {number(p.final.cap)}: {percent(p.final.changed)} of them change by more than 1 %, {percent(p.final.beyondHalf)} lie beyond half the cap, the largest
          before the cap is {atLeast(p.final.largest, p.final.cap)}{number(p.final.largest, 4)}.
        </p>
      )}
    </>
  );
}

export const softCap: Entry<"soft-cap"> = {
  made: ["toy", "run"],
  draw: Cap,
  table: (p) => (p.attention === null
    ? { columns: ["score, in caps", "capped, in caps"], rows: p.curve.x.map((x, i) => [x, p.curve.y[i]!]) }
    : {
      columns: ["layer", "head", "changed by more than 1 %", "beyond half the cap", "largest |score|"],
      rows: p.attention.changed.flatMap((heads, layer) => heads.map((share, head) => [layer, head, share, p.attention!.beyondHalf[layer]![head]!, p.attention!.largest[layer]![head]!])),
    }),
};
