// Which query heads share keys and values, and how scores become weights.

import { useWidth } from "../hooks";
import { MadeOf } from "../made";
import { Drawing, type Mark } from "../marks";
import type { HeadGrouping, SoftmaxRow } from "../data";
import { place, tokenAt } from "../document";
import { count, exact, number, percent, plural, px, short } from "../format";

export function Grouping({ picture: p }: { picture: HeadGrouping }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const heads = p.groups.reduce((n, group) => n + group.length, 0);
  const names = width < 480 ? 56 : 110;
  const room = width - names;
  const unit = Math.min(room / heads, 64);
  const r = Math.min(unit * 0.36, 17);
  const x = (head: number) => names + (head + 0.5) * unit;
  let before = 0;
  const groups = p.groups.map((group, g) => {
    const first = before;
    before += group.length;
    return { g, heads: group.map((head, i) => ({ head, x: x(first + i) })), x: x(first + (group.length - 1) / 2) };
  });
  const marks: Mark[] = [
    ...groups.flatMap(({ g, heads: list }) => list.map((h) => ({ x: h.x, y: 28, series: 0, text: `query head ${h.head}\nreads key and value head ${g}` }))),
    ...groups.map(({ g, heads: list, x: at }) => ({ x: at, y: 128, series: 1, text: `key and value head ${g}\nread by query ${list.length === 1 ? "head" : "heads"} ${list.map((h) => h.head).join(", ")}` })),
  ];
  const saved = p.cacheBytesPerPositionMha / p.cacheBytesPerPosition;
  return (
    <div ref={box} style={{ minHeight: px(160) }}>
      {width > 0 && (
        <Drawing label={`${p.kind}: ${plural(heads, "query head")}, ${plural(p.groups.length, "key and value head")}.`} width={width} height={160} marks={marks}>
          <text x={names - 14} y={28} dy="0.34em" text-anchor="end">{names < 100 ? "q" : "query heads"}</text>
          <text x={names - 14} y={128} dy="0.34em" text-anchor="end">{names < 100 ? "k, v" : "keys, values"}</text>
          {groups.map(({ g, heads: list, x: at }) => (
            <g key={g}>
              {list.map((h) => <path key={h.head} class="thread" d={`M${h.x},${28 + r}C${h.x},85 ${at},75 ${at},${128 - r}`} />)}
              {list.map((h) => (
                <g key={h.head} class="node attention">
                  <circle cx={h.x} cy={28} r={r} />
                  {r > 9 && <text x={h.x} y={28} dy="0.34em" text-anchor="middle">{h.head}</text>}
                </g>
              ))}
              <g class="node mlp">
                <rect x={at - r} y={128 - r} width={2 * r} height={2 * r} rx={3} />
                {r > 9 && <text x={at} y={128} dy="0.34em" text-anchor="middle">{g}</text>}
              </g>
            </g>
          ))}
        </Drawing>
      )}
      <p class="remark">
        Per layer, q has {count(p.parameters.q)} weights, k {count(p.parameters.k)}, v {count(p.parameters.v)}, o {count(p.parameters.o)}. Remembering one position costs {count(p.cacheBytesPerPosition)} bytes
        {saved > 1.001 && <> instead of {count(p.cacheBytesPerPositionMha)}: {number(saved)} times less than with keys and values for every query head</>}.
      </p>
    </div>
  );
}

interface Row {
  name: string;
  score: number;
  weight: number;
  text: string;
}

const line = 26;

/** Scores as dots on an axis of their own, weights as bars beside them, one row a source. */
function Rows({ rows, width, label }: { rows: readonly Row[]; width: number; label: string }) {
  const left = Math.min(Math.max(...rows.map((row) => [...row.name].length), 3) * 7.8 + 14, width * 0.3);
  const half = (width - left - 16) / 2;
  const scores = rows.map((row) => row.score);
  const [low, high] = [Math.min(0, ...scores), Math.max(0, ...scores)];
  // Numbers stand beyond their dots, so both ends keep room for one.
  const [before, after] = [low < 0 ? 58 : 12, high > 0 ? 56 : 24];
  const x = (score: number) => left + before + ((score - low) / (high - low || 1)) * (half - before - after);
  const wx = left + half + 16;
  const weight = (w: number) => w * (half - 56);
  const top = 24;
  const marks = rows.map((row, i) => ({ x: x(row.score), y: top + (i + 0.5) * line, series: 0, text: row.text }));
  return (
    <Drawing label={label} width={width} height={top + rows.length * line + 6} marks={marks} reach={2000} class="softmax">
      <text class="axis-label" x={left} y={12}>score</text>
      <text class="axis-label" x={wx} y={12}>weight</text>
      <line class="base" x1={x(0)} x2={x(0)} y1={top} y2={top + rows.length * line} />
      <line class="base" x1={wx} x2={wx} y1={top} y2={top + rows.length * line} />
      {rows.map((row, i) => (
        <g key={i} transform={`translate(0,${top + i * line})`}>
          <text class="bar-name" x={left - 8} y={line / 2} dy="0.34em" text-anchor="end">{short(row.name, Math.floor(left / 7.6) - 1)}</text>
          <line class="way" x1={x(0)} x2={x(row.score)} y1={line / 2} y2={line / 2} />
          <circle class="to" cx={x(row.score)} cy={line / 2} r={4} />
          <text class="bar-note" x={x(row.score) + (row.score < 0 ? -8 : 8)} y={line / 2} dy="0.34em" text-anchor={row.score < 0 ? "end" : "start"}>{number(row.score)}</text>
          <g class="bar attention">
            <rect x={wx} y={4} width={Math.max(weight(row.weight), 1)} height={line - 8} rx={2} />
            <text class="bar-note" x={wx + weight(row.weight) + 6} y={line / 2} dy="0.34em">{percent(row.weight)}</text>
          </g>
        </g>
      ))}
    </Drawing>
  );
}

export function Softmax({ picture: p }: { picture: SoftmaxRow }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const pair = p.pair.scores.map((score, i) => ({
    name: i === 0 ? "X" : "Y",
    score,
    weight: p.pair.weights[i]!,
    text: `${i === 0 ? "X" : "Y"}\nscore ${exact(score)}\nweight ${exact(p.pair.weights[i])}`,
  }));
  const run = p.sources.map((source, i) => ({
    name: tokenAt(source),
    score: p.scores[i]!,
    weight: p.weights[i]!,
    text: `${place(source)}\nscore ${exact(p.scores[i])}\nweight ${exact(p.weights[i])}`,
  }));
  if (p.sink !== null)
    run.push({ name: "the sink", score: p.sink.score, weight: p.sink.weight, text: `the head's sink, which hands over nothing\nscore ${exact(p.sink.score)}\nweight ${exact(p.sink.weight)}` });
  return (
    <div ref={box}>
      {width > 0 && (
        <>
          <p class="row-title">Two scores, ln 2 apart <MadeOf of="toy" /></p>
          <Rows rows={pair} width={width} label="Scores 0 and −0.693 and their weights." />
          <p class="row-title">Layer {p.layer}, head {p.head}: what <bdi>{tokenAt(p.target)}</bdi> looks at <MadeOf of="run" /></p>
          <Rows rows={run} width={width} label={`Scores and weights of layer ${p.layer}, head ${p.head}.`} />
        </>
      )}
    </div>
  );
}
