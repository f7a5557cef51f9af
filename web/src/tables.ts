// The tables of a picture, from what its document declares.

import type { Column, TableSpec } from "./data";
import type { Table } from "./figure";
import { Paths, wildcards, written, type Places } from "./paths";

type Cell = string | number | null;

/** Numbers stay numbers, which the table writes with all their digits. */
function cell(value: unknown, as = ""): Cell {
  if (value === null || value === undefined) return null;
  return typeof value === "number" && !["token", "at", "place", "ordinal"].includes(as) ? value : written(value, as);
}

function rowsOf(paths: Paths, columns: readonly Column[]): Places[] {
  const own = columns.find(([, cells]) => typeof cells !== "string")?.[1];
  if (own !== undefined) return Array.from("cells" in (own as object) ? (own as { cells: Cell[] }).cells : (own as string[]), (_, i) => [i]);
  return paths.places(columns.map(([, path]) => path as string).filter((path) => !path.startsWith("#")).reduce((a, b) => (wildcards(b) > wildcards(a) ? b : a)));
}

export function tablesOf(picture: { tables: readonly TableSpec[] }): Table[] {
  const paths = new Paths(picture);
  return picture.tables.filter((spec) => spec.if === undefined || paths.value(spec.if) !== null).map((spec): Table => {
    const note = spec.note === undefined ? {} : { note: paths.text(spec.note) };
    if (spec.grid !== undefined) {
      const { grid } = spec;
      const [first, second] = paths.sizes(grid.values);
      const [rows, cols] = grid.across ? [second, first] : [first, second];
      const at = (row: number, col: number): Places => (grid.across ? [col, row] : [row, col]);
      return {
        ...note,
        columns: [grid.corner, ...Array.from({ length: cols }, (_, col) => paths.text(grid.columns, at(0, col)))],
        rows: Array.from({ length: rows }, (_, row) => [paths.text(grid.rows, at(row, 0)), ...Array.from({ length: cols }, (_, col) => cell(paths.value(grid.values, at(row, col))))]),
      };
    }
    const rows = rowsOf(paths, spec.columns!);
    const { largest } = spec;
    if (largest !== undefined) rows.sort((a, b) => Math.abs(paths.number(largest, b)) - Math.abs(paths.number(largest, a)));
    const columns = spec.columns!.filter(([, cells]) => typeof cells !== "string" || wildcards(cells) === 0 || paths.places(cells).length > 0);
    return {
      ...note,
      columns: columns.map(([name]) => paths.text(name)),
      rows: rows.map((at, row) => columns.map(([, cells, as]) =>
        cell(typeof cells === "string" ? paths.value(cells, at) : Array.isArray(cells) ? paths.value(cells[row]!) : cells.cells[row], as))),
    };
  }).filter((table) => table.rows.length > 0);
}
