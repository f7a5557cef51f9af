// The tree of continuations that a beam search looks at: one column a token, the best sums on top.

import { Drawing, type Mark } from "../marks";
import type { BeamSearch } from "../data";
import { spelling } from "../document";
import { exact, number, px, short } from "../format";
import { useWidth } from "../hooks";

const line = 24;
const top = 22;

export function Beams({ picture: p }: { picture: BeamSearch }) {
  const [box, width] = useWidth<HTMLDivElement>();
  // In each column those that were kept stand on top, and each part by its sum.
  const columns = Array.from({ length: p.length }, (_, i) =>
    p.nodes.map((node, at) => ({ node, at })).filter(({ node }) => node.step === i + 1)
      .sort((a, b) => Number(b.node.kept) - Number(a.node.kept) || b.node.total - a.node.total));
  const rows = Math.max(...columns.map((column) => column.length));
  const height = top + rows * line + 6;
  const wide = Math.max(width, 560);
  const step = (wide - 8) / p.length;
  const x = (column: number) => 4 + column * step;
  const y = (row: number) => top + (row + 0.5) * line;
  const places = new Map<number, { x: number; y: number }>();
  columns.forEach((column, c) => column.forEach(({ at }, row) => places.set(at, { x: x(c), y: y(row) })));
  const marks: Mark[] = columns.flatMap((column, c) => column.map(({ node, at }) => ({
    x: places.get(at)!.x + step * 0.35,
    y: places.get(at)!.y,
    series: c,
    text: `${spelling(node.id)}\n${node.text}\nln p ${exact(node.logprob)}, sum ${exact(node.total)}\n${node.best ? "part of the text that won" : node.kept ? "kept" : "dropped"}`,
  })));
  const letters = Math.max(3, Math.floor((step * 0.72 - 46) / 7.4));
  return (
    <div ref={box} class="scroll-x" style={{ minHeight: px(height), overflowX: "auto" }} tabIndex={0} role="group" aria-label="Tree of the beam search">
      {width > 0 && (
        <Drawing label={`Tree of a search with ${p.beams} beams: ${p.nodes.length} continuations.`} width={wide} height={height} marks={marks} reach={60} class="tree beams">
          {columns.map((_, c) => <text key={c} class="axis-label" x={x(c)} y={12}>{c === 0 ? "token 1" : c + 1}</text>)}
          {p.nodes.map((node, at) => {
            if (node.parent === null) return null;
            const [from, to] = [places.get(node.parent)!, places.get(at)!];
            const right = from.x + step * 0.74;
            return <path key={at} class={node.best ? "branch" : "branch later"} d={`M${right},${from.y}C${right + step * 0.14},${from.y} ${to.x - step * 0.14},${to.y} ${to.x - 2},${to.y}`} />;
          })}
          {p.nodes.map((node, at) => {
            const place = places.get(at)!;
            return (
              <g key={at} class={`part ${node.best ? "now" : node.kept ? "end" : "later"}`}>
                <rect x={place.x} y={place.y - 10} width={step * 0.74} height={20} rx={4} />
                <text x={place.x + 5} y={place.y} dy="0.34em">{short(spelling(node.id), letters)} {number(node.total)}</text>
              </g>
            );
          })}
        </Drawing>
      )}
      <p class="remark">
        The number behind each token is the sum of ln p up to it. {p.same === true
          ? <>Greedy decoding writes the same text.</>
          : <>Greedy decoding writes another text, with a sum of {number(p.greedy.total, 4)} against {number(p.found[0]!.total, 4)}.</>}
      </p>
    </div>
  );
}
