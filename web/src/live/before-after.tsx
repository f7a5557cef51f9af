// Values before and after a change, the same way everywhere on the page: before as an outline, after filled.

import type { ComponentChildren } from "preact";
import { number, percent } from "../format";

/** How values are written: as a share in per cent, or as they are. */
export type Unit = "%" | "";
/** What outline and filling mean. */
export type Names = readonly [before: string, after: string];

export const beforeAfter: Names = ["before", "after"];

function written(value: number, unit: Unit): string {
  return unit === "%" ? percent(value) : number(value);
}

interface BarProps {
  /** Not negative. Null: there is no such value. */
  before: number | null;
  after: number | null;
  /** The value that fills the width. */
  most: number;
}

/** One bar. What it shows stands beside it in words. */
export function BeforeAfterBar({ before, after, most }: BarProps) {
  const width = (value: number) => `${Math.min(100, (100 * value) / Math.max(most, 1e-30))}%`;
  return (
    <span class="ba-bar" aria-hidden="true">
      {after !== null && <i class="ba-after" style={{ width: width(after) }} />}
      {before !== null && <i class="ba-before" style={{ width: width(before) }} />}
    </span>
  );
}

export function BeforeAfterKey({ names = beforeAfter }: { names?: Names }) {
  return (
    <p class="ba-key">
      <span><i class="ba-swatch ba-before" aria-hidden="true" />{names[0]}</span>
      <span><i class="ba-swatch ba-after" aria-hidden="true" />{names[1]}</span>
    </p>
  );
}

export interface BeforeAfterRow {
  key: string | number;
  name: ComponentChildren;
  /** Not negative. Null: there is no such value. */
  before: number | null;
  after: number | null;
  /** Said in the place of a value that is not there. */
  lacks?: string;
  /** Of the row's element, for whoever looks for it. */
  data?: Readonly<Record<`data-${string}`, string | number>>;
}

interface Props {
  /** Of the list. */
  label: string;
  rows: readonly BeforeAfterRow[];
  unit: Unit;
  names?: Names;
}

/** A named row a value. Rows without a value before are plain bars; a list without any has no key. */
export function BeforeAfter({ label, rows, unit, names = beforeAfter }: Props) {
  const most = Math.max(...rows.flatMap((row) => [row.before ?? 0, row.after ?? 0]));
  const compared = rows.some((row) => row.before !== null);
  return (
    <>
      {compared && <BeforeAfterKey names={names} />}
      <ol class="ba-rows" aria-label={label}>
        {rows.map((row) => (
          <li key={row.key} {...row.data}>
            <span class="ba-name">{row.name}</span>
            <BeforeAfterBar before={row.before} after={row.after} most={most} />
            <span class="ba-figure">
              {compared && <small><span class="unseen">{names[0]} </span>{row.before === null ? (row.lacks ?? "–") : written(row.before, unit)} <span aria-hidden="true">→</span> <span class="unseen">{names[1]} </span></small>}
              <b>{row.after === null ? (row.lacks ?? "–") : written(row.after, unit)}</b>
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}

/** Rows of two lists of the same things, those that are largest in either first. */
export function pairs<T>(before: readonly T[] | null, after: readonly T[], { id, value, name, most, lacks }: {
  id: (one: T) => number;
  value: (one: T) => number;
  name: (one: T) => ComponentChildren;
  /** How many rows. */
  most: number;
  lacks?: string;
}): BeforeAfterRow[] {
  const [was, is] = [new Map(before?.map((one) => [id(one), one])), new Map(after.map((one) => [id(one), one]))];
  const size = (key: number) => Math.max(...[was.get(key), is.get(key)].map((one) => (one === undefined ? 0 : value(one))));
  const keys = [...new Set([...is.keys(), ...was.keys()])].sort((a, b) => size(b) - size(a)).slice(0, most);
  return keys.map((key) => {
    const [one, other] = [was.get(key), is.get(key)];
    return { key, name: name((other ?? one)!), before: one === undefined ? null : value(one), after: other === undefined ? null : value(other), ...(lacks === undefined ? {} : { lacks }) };
  });
}
