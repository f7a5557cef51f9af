// Every tensor in a table that sorts by the column whose head is pressed.

import { useMemo, useState } from "preact/hooks";
import { count, number, plural, precise, shape, short } from "../format";
import type { MergeTensor } from "./data";
import { anyInput, inputNames, inputsOf, kept, known, merge, norm, pairNames, pairs, parameter, parameterNames, valueOf } from "./quantities";

interface Column {
  name: string;
  value: (t: MergeTensor) => number | string;
  write?: (value: number) => string;
}

const fewPairs = 3;
const page = 100;

/** The columns that have a value for some tensor. */
const columns: readonly Column[] = [
  { name: "tensor", value: (t: MergeTensor) => t.name },
  { name: "layer", value: (t: MergeTensor) => (t.layer < 0 ? NaN : t.layer), write: String },
  { name: "shape", value: (t: MergeTensor) => shape(t.shape) },
  { name: "elements", value: (t: MergeTensor) => t.elements, write: count },
  ...parameterNames.flatMap((name): Column[] => (inputsOf(name).length === 0
    ? [{ name, value: (t) => parameter(t, name, anyInput(name)) }]
    : inputsOf(name).map((i) => ({ name: `${name}, ${short(inputNames[i]!, 20)}`, value: (t) => parameter(t, name, i) })))),
  ...inputNames.map((name, i): Column => ({ name: `norm, ${short(name, 20)}`, value: (t) => norm(t, i) })),
  ...(pairs.length <= fewPairs
    ? pairNames.map((name, i): Column => ({ name: `cosine, ${name}`, value: (t) => valueOf(t.cosines[i]) }))
    : [
        { name: "smallest cosine", value: (t: MergeTensor) => extreme(t, Math.min) },
        { name: "largest cosine", value: (t: MergeTensor) => extreme(t, Math.max) },
      ]),
  { name: "angle in degrees", value: (t: MergeTensor) => (valueOf(t.angle) * 180) / Math.PI },
  { name: "sign conflict", value: (t: MergeTensor) => valueOf(t.signConflict) },
  ...inputNames.map((name, i): Column => ({ name: `kept, ${short(name, 20)}`, value: (t) => kept(t, i) })),
  { name: "norm of the result", value: (t: MergeTensor) => valueOf(t.resultNorm) },
  { name: merge.base === null ? "result from the first input" : "result from the base", value: (t: MergeTensor) => valueOf(t.resultDistance) },
].filter((column) => merge.tensors.some((t) => {
  const value = column.value(t);
  return typeof value === "string" || known(value);
}));

function extreme(t: MergeTensor, pick: (...values: number[]) => number): number {
  const values = t.cosines.filter((v) => v !== null);
  return values.length === 0 ? NaN : pick(...values);
}

function order(a: number | string, b: number | string): number {
  if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
  return a - b;
}

export function TensorTable() {
  const [by, sortBy] = useState<number | null>(null);
  const [falling, turn] = useState(false);
  const [words, search] = useState("");
  const [shown, show] = useState(page);
  const found = useMemo(() => {
    const wanted = words.trim().toLowerCase().split(/\s+/);
    return merge.tensors.filter((t) => wanted.every((word) => t.name.toLowerCase().includes(word)));
  }, [words]);
  const rows = useMemo(() => {
    const column = by === null ? undefined : columns[by];
    if (column === undefined) return found;
    const missing = (t: MergeTensor) => {
      const value = column.value(t);
      return typeof value === "number" && !known(value);
    };
    // What is not known stands at the end, whichever way the rest is sorted.
    return [
      ...found.filter((t) => !missing(t)).sort((a, b) => (falling ? -1 : 1) * order(column.value(a), column.value(b))),
      ...found.filter(missing),
    ];
  }, [found, by, falling]);
  const press = (index: number) => {
    const again = by === index;
    // Numbers are asked for the largest first, names from A on.
    turn(again ? !falling : index !== 0);
    sortBy(index);
  };
  return (
    <>
      <label class="search">
        <span>Names that hold</span>
        <input type="search" value={words} placeholder="self_attn 3" onInput={(event) => search(event.currentTarget.value)} />
        <output>{found.length === merge.tensors.length ? plural(found.length, "tensor") : `${count(found.length)} of ${plural(merge.tensors.length, "tensor")}`}</output>
      </label>
      <div class="table-scroll tall" tabIndex={0} role="region" aria-label="Every tensor of the merge">
        <table class="tensors">
          <thead>
            <tr>
              {columns.map((column, i) => (
                <th key={column.name} scope="col" aria-sort={by !== i ? "none" : falling ? "descending" : "ascending"}>
                  <button type="button" onClick={() => press(i)}>{column.name}<span aria-hidden="true">{by !== i ? "" : falling ? " ↓" : " ↑"}</span></button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, shown).map((t) => (
              <tr key={t.name}>
                {columns.map((column) => {
                  const value = column.value(t);
                  if (typeof value === "string") return <td key={column.name}><bdi>{value}</bdi></td>;
                  const write = column.write ?? ((v: number) => number(v, 4));
                  return <td key={column.name} class="number" title={known(value) ? precise(value) : undefined}>{known(value) ? write(value) : "–"}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown && <p class="more"><button type="button" onClick={() => show(shown + 5 * page)}>Show more ({count(rows.length - shown)} left)</button></p>}
    </>
  );
}
