// Attention weights of every head of every layer as small squares; one of them large, with its tokens.

import type { TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Choice } from "../controls";
import type { Attention } from "../data";
import { tokenAt } from "../document";
import { exact, number, percent, px } from "../format";
import { paint, ScaleKey } from "../heat";
import { useNear, useTheme, useWidth } from "../hooks";
import { reveal } from "../reading";
import { hideTip, showTip } from "../tip";
import { onHead } from "./attention-choice";
import { reduced, side, square } from "./attention-data";
import { Enlarged } from "./attention-head";
import { WhoLooks } from "./attention-who";

const gap = 5;
/** What the reader has picked stays picked when another document takes the place of this one. */
let picked: readonly [number, number] | undefined;

function Thumb({ picture: p, layer, head, size, chosen }: { picture: Attention; layer: number; head: number; size: number; chosen: boolean }) {
  const [box, near] = useNear<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const shade = useTheme();
  useLayoutEffect(() => {
    if (!near || canvas.current === null) return;
    const { n, value } = reduced(p, layer, head, Math.max(32, size * 2));
    paint(canvas.current, n, n, value, "sequential", 1);
  }, [near, p, layer, head, size, shade]);
  return <div ref={box} class={chosen ? "thumb chosen" : "thumb"} style={{ width: px(size), height: px(size) }}><canvas ref={canvas} /></div>;
}

/** The head that looks most at the token before: a pattern that is easily told from others. */
function striking(p: Attention): readonly [number, number] {
  let best: readonly [number, number] = [0, 0];
  p.onPrevious.forEach((row, layer) => row.forEach((share, head) => {
    if (share !== null && share > p.onPrevious[best[0]]![best[1]]!) best = [layer, head];
  }));
  return best;
}

export function Attentions({ picture: p }: { picture: Attention }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [order, setOrder] = useState<"spiky" | "number">("spiky");
  const [chosen, setChosen] = useState(() => picked ?? striking(p));
  const choose = (head: readonly [number, number]) => setChosen(picked = head);
  const [at, set] = useState<readonly [number, number] | null>(null);
  const area = useRef<HTMLDivElement>(null);
  const large = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => onHead((layer, head) => choose([layer, head])), []);
  /** What a reader has asked for must not stay below the window's edge. */
  const enlarge = (one: readonly [number, number]) => {
    choose(one);
    reveal(large.current);
  };
  const heads = useMemo(() => Array.from({ length: p.nLayers }, (_, layer) =>
    order === "spiky" ? p.flatToSpiky[layer]! : Array.from({ length: p.nHeads }, (_, head) => head)), [p, order]);

  // Layers run across where each square still has 44 pixels, else down; where neither fits, the grid scrolls.
  const names = 64;
  const across = (width - names) / p.nLayers >= 44;
  const [cols, rows] = across ? [p.nLayers, p.nHeads] : [p.nHeads, p.nLayers];
  const size = Math.max(28, Math.min(Math.floor((width - names) / cols) - gap, 112));
  const pitch = size + gap;
  const headAt = (row: number, col: number): readonly [number, number] => {
    const [layer, rank] = across ? [col, row] : [row, col];
    return [layer, heads[layer]![rank]!];
  };
  const n = side(p);
  const binned = p.level === "tiles";
  const per = p.tiles?.tokensPerBin ?? 1;
  const about = (layer: number, head: number) => {
    const flat = p.flatness[layer]![head]!;
    const lines = [`layer ${layer}, head ${head}`, flat === null ? "no flatness: no token sees a second position here" : `flatness ${number(flat, 2)} (0: all on one token, 1: evenly spread)`];
    for (const [where, shares] of [["the token before", p.onPrevious], ["itself", p.onSelf], ["the first token", p.onFirst]] as const) {
      const share = shares[layer]![head]!;
      if (share !== null) lines.push(`on ${where}: ${percent(share)}`);
    }
    return lines.join("\n");
  };
  const measured = useMemo(() => p.flatness.some((row) => row.some((flat) => flat !== null)), [p]);

  const locate = (event: MouseEvent) => {
    const frame = area.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const [col, row] = [Math.floor(x / pitch), Math.floor(y / pitch)];
    if (col < 0 || row < 0 || col >= cols || row >= rows) return null;
    const cell = (v: number) => Math.floor(((v % pitch) / size) * n);
    return { row, col, target: cell(y), source: cell(x) };
  };
  const hover = (event: MouseEvent) => {
    const found = locate(event);
    set(found === null ? null : [found.row, found.col]);
    if (found === null) return hideTip();
    const [layer, head] = headAt(found.row, found.col);
    const weight = found.target < n && found.source < n ? square(p, layer, head)(found.target, found.source) : null;
    const range = (bin: number) => (binned ? `tokens ${bin * per} to ${Math.min((bin + 1) * per, p.nTokens) - 1}` : tokenAt(bin));
    const cell = weight === null ? "" : `\n${range(found.target)} looks at ${range(found.source)}: ${binned ? "at most " : ""}${exact(weight)}`;
    showTip(about(layer, head) + cell, event.clientX, event.clientY);
  };
  const focus = (row: number, col: number) => {
    set([row, col]);
    const frame = area.current!.getBoundingClientRect();
    const [layer, head] = headAt(row, col);
    showTip(`${about(layer, head)}\nEnter enlarges it`, frame.left + (col + 0.5) * pitch, frame.top + row * pitch, true);
  };
  const keys = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const [row, col] = at ?? [0, 0];
    const moves: Record<string, readonly [number, number]> = {
      ArrowRight: [row, col + 1], ArrowLeft: [row, col - 1], ArrowDown: [row + 1, col], ArrowUp: [row - 1, col], Home: [row, 0], End: [row, cols - 1],
    };
    const to = moves[event.key];
    if (to !== undefined) {
      event.preventDefault();
      focus(Math.min(Math.max(to[0], 0), rows - 1), Math.min(Math.max(to[1], 0), cols - 1));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      enlarge(headAt(row, col));
    } else if (event.key === "Escape") hideTip();
  };
  const every = Math.max(1, Math.ceil(22 / pitch));
  /** The name of a row or column: its layer, or its head, which has a number only while heads are in order. */
  const name = (ofHeads: boolean, index: number, total: number, roomy: boolean) => {
    if (ofHeads && order === "spiky" && measured) return index === 0 ? "flat" : index === total - 1 ? "spiky" : "";
    if (index % every !== 0) return "";
    return roomy && (ofHeads || index === 0 || !across) ? `${ofHeads ? "head" : "layer"} ${index}` : String(index);
  };
  return (
    <div ref={box}>
      {measured && <Choice label="Heads" options={[{ value: "spiky", name: "flat to spiky" }, { value: "number", name: "as numbered" }]} value={order} onChange={setOrder} />}
      {width > 0 && (
        <div class="thumbs-scroll" tabIndex={-1}>
          <div class="thumbs-names top" style={{ paddingLeft: px(names) }} aria-hidden="true">
            {Array.from({ length: cols }, (_, col) => <span key={col} style={{ width: px(pitch) }}>{name(!across, col, cols, pitch > 52)}</span>)}
          </div>
          <div class="thumbs">
            <div class="thumbs-names side" style={{ width: px(names) }} aria-hidden="true">
              {Array.from({ length: rows }, (_, row) => <span key={row} style={{ height: px(pitch) }}>{name(across, row, rows, true)}</span>)}
            </div>
            <div
              ref={area}
              class="thumbs-area"
              style={{ width: px(cols * pitch), gridTemplateColumns: `repeat(${cols}, ${pitch}px)` }}
              role="application"
              aria-roledescription="grid of attention heads"
              aria-label={`Attention of ${p.nLayers} layers with ${p.nHeads} heads each. Arrow keys move from head to head; Enter enlarges one.`}
              tabIndex={0}
              onPointerMove={hover}
              onPointerLeave={() => {
                set(null);
                hideTip();
              }}
              onClick={(event) => {
                const found = locate(event);
                if (found !== null) enlarge(headAt(found.row, found.col));
              }}
              onFocus={(event) => {
                if (at === null && event.currentTarget.matches(":focus-visible")) focus(0, 0);
              }}
              onBlur={() => {
                set(null);
                hideTip();
              }}
              onKeyDown={keys}
            >
              {Array.from({ length: rows * cols }, (_, i) => {
                const [layer, head] = headAt(Math.floor(i / cols), i % cols);
                return <Thumb key={`${layer} ${head}`} picture={p} layer={layer} head={head} size={size} chosen={layer === chosen[0] && head === chosen[1]} />;
              })}
              {at !== null && <div class="thumb-at" style={{ left: px(at[1] * pitch - 2), top: px(at[0] * pitch - 2), width: px(size + 4), height: px(size + 4) }} />}
            </div>
          </div>
        </div>
      )}
      <div class="below-grid">
        <ScaleKey scale="sequential" label="attention weight" low="0" high="1" />
        <span>across a square: source (key); down: target (query)</span>
      </div>
      <div ref={large}><Enlarged picture={p} layer={chosen[0]} head={chosen[1]} about={about(chosen[0], chosen[1])} /></div>
      {p.level === "full" && p.nTokens > 1 && <WhoLooks picture={p} onPick={enlarge} />}
    </div>
  );
}
