// Pictures drawn from the charts that their documents declare (Chart in data.ts; svg/declared.cpp of the program draws the same).

import { extent } from "d3-array";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { linearDomain, logDomain, type AxisSpec } from "./axes";
import { Bars, Dumbbells } from "./bars";
import { Choice, Slider } from "./controls";
import type { BarsSpec, BesideSpec, Chart, ChartAxis, Choose, GridSpec, PairsSpec, Pick, XySpec } from "./data";
import { withSpaces } from "./document";
import { Prose } from "./figure";
import { number, percent } from "./format";
import { Heat, ScaleKey } from "./heat";
import { MadeOf } from "./made";
import { Paths, written, type Places } from "./paths";
import { Reproduce, type Reproduction } from "./recipe";
import { gradientAt, headOff, normOff, normsOff, sublayerOff } from "./recipes";
import { XyChart, type Point, type Series } from "./xychart";

/** So many alternatives stand side by side; more are on a slider. */
const sideBySide = 16;

interface Props<Spec> {
  spec: Spec;
  paths: Paths;
  pick: (of: Reproduction | null) => void;
}

/** What a picked mark offers, by the name that the declaration gives. */
const offers: Record<Pick["do"], (...given: never[]) => Reproduction> = {
  sublayer: (layer: number, part: "attention" | "mlp", position?: number) => sublayerOff(layer, part, position === undefined ? {} : { position }),
  norm: normOff,
  norms: normsOff,
  head: (layer: number, head: number) => headOff(layer, head),
  gradient: gradientAt,
};

function picker(of: Pick | undefined, paths: Paths, pick: (of: Reproduction | null) => void): ((at: Places) => void) | null {
  if (of === undefined) return null;
  // A text that is one path stands for the value itself.
  const given = (text: string, at: Places) => (/^\{[^{}|]*\}$/.test(text) ? paths.value(text.slice(1, -1), at) : paths.text(text, at));
  return (at) => pick(offers[of.do](...(of.with.map((text) => given(text, at)) as never[])));
}

const offered = (of: Pick | undefined) => (of === undefined ? "" : `\nclick or Enter: ${of.says}`);

function axisOf(spec: ChartAxis, values: readonly number[]): AxisSpec {
  const found = values.filter(Number.isFinite);
  const pad = spec.pad ?? 0;
  const [low = 0, high = 1] = extent(found);
  const domain = spec.domain ?? (spec.log ? logDomain(found) : spec.whole ? ([low - pad, Math.max(high, low + (pad > 0 ? 0 : 1)) + pad] as const) : linearDomain(found, spec.zero ? 0 : undefined));
  const format = spec.whole ? (v: number) => (Number.isInteger(v) ? number(v) : "") : spec.as === "%" ? (v: number) => percent(v).replace(/\.0+ /, " ") : undefined;
  return { label: spec.label, domain, ...(spec.log ? { log: true } : {}), ...(format === undefined ? {} : { format }) };
}

function Xy({ spec, paths, pick, right }: Props<XySpec> & { right?: number }) {
  const chart = useMemo(() => {
    const { step = 1 } = spec.x;
    const series = spec.series.flatMap((one): Series[] => {
      const places = paths.places(one.y);
      if (places.length > (one.most ?? Infinity) || !places.some((at) => Number.isFinite(paths.number(one.y, at)))) return [];
      const picked = picker(one.pick, paths, pick);
      return [{
        name: paths.text(one.name), tone: one.tone, draw: one.draw, ...(one.dashed ? { dashed: true } : {}), ...(one.named === false ? { named: false } : {}),
        points: places.map((at): Point => ({
          x: (one.x === undefined ? at.at(-1)! : paths.number(one.x, at)) * step + (one.shift ?? 0),
          y: paths.number(one.y, at),
          text: paths.text(one.hint, at) + offered(one.pick),
          ...(picked === null ? {} : { pick: () => picked(at) }),
        })),
      }];
    });
    const rules = (typeof spec.rules === "string" ? (paths.value(spec.rules) as { y: number; label: string }[]) : spec.rules ?? [])
      .map((rule) => ({ y: typeof rule.y === "string" ? paths.number(rule.y) : rule.y, label: paths.text(rule.label) }));
    const points = series.flatMap((one) => one.points);
    return {
      series, rules,
      x: axisOf(spec.x, points.map((point) => Math.round((point.x) * 2) / 2)),
      y: axisOf(spec.y, [...points.map((point) => point.y), ...rules.map((rule) => rule.y)]),
    };
  }, [spec, paths]);
  const names = chart.series.filter((one) => one.named !== false).map((one) => one.name.length);
  return <XyChart label={paths.text(spec.label)} {...chart} height={spec.height ?? 300} right={right ?? (names.length === 0 ? 20 : Math.max(...names) * 7.4 + 18)} />;
}

function Barred({ spec, paths }: Props<BarsSpec>) {
  const bars = useMemo(() => {
    const places = paths.places(spec.value).map((at, i) => ({ at, i, value: paths.number(spec.value, at) }));
    const shown = spec.largest === undefined ? places : [...places].sort((a, b) => Math.abs(b.value || 0) - Math.abs(a.value || 0)).slice(0, spec.largest).sort((a, b) => a.i - b.i);
    return shown.map(({ at, value }) => ({
      name: paths.text(spec.name, at),
      value: value || 0,
      tone: spec.faint !== undefined && paths.value(spec.faint, at) === true ? "faint" : value < 0 ? "negative" : "attention",
      note: spec.note === undefined ? number(value) : paths.text(spec.note, at),
      text: paths.text(spec.hint, at),
    }));
  }, [spec, paths]);
  const all = paths.places(spec.value).length;
  return (
    <>
      <Bars label={paths.text(spec.label)} bars={bars} most={spec.most ?? Math.max(...bars.map((bar) => Math.abs(bar.value)), 1e-30)} />
      {bars.length < all && <p class="remark">The {bars.length} with the largest values, of {all}.</p>}
    </>
  );
}

function Paired({ spec, paths }: Props<PairsSpec>) {
  const content = useMemo(() => {
    const end = (of: PairsSpec["from"], at: Places) => ({ value: paths.number(of.value, at), name: paths.text(of.name), text: paths.text(of.hint, at) });
    const rows = paths.places(spec.from.value).map((at) => ({ name: paths.text(spec.name, at), from: end(spec.from, at), to: end(spec.to, at) }));
    return { rows, axis: axisOf(spec.axis, rows.flatMap((row) => [row.from.value, row.to.value])) };
  }, [spec, paths]);
  return <Dumbbells label={paths.text(spec.label)} {...content} />;
}

/** Names of columns are written where there are no more. */
const namedColumns = 64;

function Grid({ spec, paths, pick }: Props<GridSpec>) {
  const grid = useMemo(() => {
    const [rows, cols] = paths.sizes(spec.values);
    const at = (row: number, col: number): Places => paths.inside(row, col);
    const cells = Array.from({ length: rows * cols }, (_, i) => paths.number(spec.values, at(Math.floor(i / cols), i % cols)));
    const most = spec.most ?? Math.max(...cells.filter(Number.isFinite).map(Math.abs), 1e-30);
    const names = (text: string | undefined, n: number, of: (i: number) => Places) => (text === undefined ? [] : Array.from({ length: n }, (_, i) => paths.text(text, of(i))));
    const colNames = names(spec.columns, cols, (i) => at(0, i));
    return { rows, cols, at, most, value: (row: number, col: number) => cells[row * cols + col]!, rowNames: names(spec.rows, rows, (i) => at(i, 0)), colNames };
  }, [spec, paths]);
  const { rows, cols, at, most, value, rowNames, colNames } = grid;
  const picked = picker(spec.pick, paths, pick);
  const many = cols > namedColumns && spec.columns !== undefined;
  const ticks = many ? [0, cols - 1].map((col) => ({ at: col, text: String(spec.place === undefined ? col : paths.value(spec.place, at(0, col))) })) : spec.ticks === undefined ? [] : (paths.value(spec.ticks) as { at: number; text: string }[]);
  const write = spec.write;
  const end = (value: number) => (spec.key.as === "%" ? percent(value) : number(value));
  return (
    <>
      <Heat
        label={paths.text(spec.label)} rows={rows} cols={cols} value={value} scale={spec.scale} most={most}
        rowNames={rowNames} colNames={many ? [] : colNames}
        {...(spec.columnTitle === undefined ? {} : { colTitle: spec.columnTitle })}
        {...(spec.cell === undefined ? {} : { cell: spec.cell })} {...(spec.tall === undefined ? {} : { tall: rows > 16 ? Math.min(spec.tall, 16) : spec.tall })}
        {...(write === undefined ? {} : { write: (v: number) => written(v, write) })}
        bottomTicks={ticks} {...(ticks.length === 0 ? {} : { bottomTitle: spec.bottomTitle ?? "position" })}
        {...(picked === null ? {} : { picks: spec.pick!.says, onPick: (row: number, col: number) => picked(at(row, col)) })}
        describe={(row, col) => paths.text(spec.hint, at(row, col)) + offered(spec.pick)}
      />
      <ScaleKey scale={spec.scale} label={paths.text(spec.key.label)} low={spec.key.low ?? end(spec.scale === "diverging" ? -most : 0)} high={spec.key.high ?? end(most)} />
    </>
  );
}

function Beside({ spec, paths, pick }: Props<BesideSpec>) {
  const all = useMemo(() => paths.places(spec.each).map((at) => paths.within(at)).filter((inner) => shown(spec.chart, inner)), [spec, paths]);
  return (
    <div class="slice-grid">
      {all.map((inner, i) => (
        <div key={i}>
          <p class="panel-title">{inner.text(spec.chart.title ?? "")}</p>
          <Xy spec={spec.chart} paths={inner} pick={pick} />
        </div>
      ))}
    </div>
  );
}

function Chosen({ spec, paths, pick }: Props<Choose>) {
  const options = useMemo(() => (spec.each === undefined
    ? (spec.options ?? []).filter((one) => shown(one, paths)).map((one) => ({ name: paths.text(one.name), charts: one.charts, paths }))
    : paths.places(spec.each).map((at) => {
      const inner = paths.within(at);
      return { name: inner.text(spec.name!), charts: spec.charts!, paths: inner };
    })), [spec, paths]);
  const [index, choose] = useState(spec.at === undefined ? 0 : paths.number(spec.at) || 0);
  const option = options[index] ?? options[0]!;
  const change = (to: number) => {
    choose(to);
    pick(null);
  };
  return (
    <>
      {options.length > 1 && (options.length <= sideBySide
        ? <Choice label={spec.choose} options={options.map(({ name }, value) => ({ value, name }))} value={index} onChange={change} />
        : <Slider label={spec.choose} min={0} max={options.length - 1} value={index} onChange={change} says={option.name} />)}
      <Several key={index} charts={option.charts} paths={option.paths} pick={pick} />
    </>
  );
}

function shown(spec: { if?: string }, paths: Paths): boolean {
  return spec.if === undefined || paths.value(spec.if) !== null;
}

function one(spec: Chart, paths: Paths, pick: (of: Reproduction | null) => void): ComponentChildren {
  if ("choose" in spec) return <Chosen spec={spec} paths={paths} pick={pick} />;
  switch (spec.kind) {
    case "xy": return <Xy spec={spec} paths={paths} pick={pick} />;
    case "bars": return <Barred spec={spec} paths={paths} pick={pick} />;
    case "pairs": return <Paired spec={spec} paths={paths} pick={pick} />;
    case "grid": return <Grid spec={spec} paths={paths} pick={pick} />;
    case "beside": return <Beside spec={spec} paths={paths} pick={pick} />;
    case "remark": return <p class="remark"><Prose text={paths.text(spec.text)} /></p>;
  }
}

function Several({ charts, paths, pick }: { charts: readonly Chart[]; paths: Paths; pick: (of: Reproduction | null) => void }) {
  return (
    <>
      {charts.filter((spec) => shown(spec, paths)).map((spec, i) => (
        <div key={i} class="chart">
          {"title" in spec && spec.title !== undefined && <p class="row-title">{withSpaces(paths.text(spec.title))}{spec.made !== undefined && <> <MadeOf of={spec.made} /></>}</p>}
          {one(spec, paths, pick)}
        </div>
      ))}
    </>
  );
}

export function Charts({ picture }: { picture: { charts: readonly Chart[] } }) {
  const [picked, pick] = useState<Reproduction | null>(null);
  const paths = useMemo(() => new Paths(picture), [picture]);
  return (
    <>
      <Several charts={picture.charts} paths={paths} pick={pick} />
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
    </>
  );
}
