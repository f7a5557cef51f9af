// Which positions each layer can see, which can have come there through the layers before, and what the cache keeps.

import { useMemo } from "preact/hooks";
import { axis, BottomAxis } from "../axes";
import { Bars } from "../bars";
import type { Reach } from "../data";
import { count, number, plural, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";

function bytes(n: number): string {
  if (n >= 2 ** 30) return `${number(n / 2 ** 30)} GiB`;
  if (n >= 2 ** 20) return `${number(n / 2 ** 20)} MiB`;
  if (n >= 2 ** 10) return `${number(n / 2 ** 10)} KiB`;
  return `${count(n)} bytes`;
}

/** From where on the last token of a full context sees, and from where on content can have come to it, by layer. */
export function atFullContext(windows: readonly number[], context: number): { window: number; sees: number; receives: number }[] {
  let receives = context - 1;
  return windows.map((window) => {
    const sees = window === 0 ? 0 : Math.max(0, context - window);
    receives = window === 0 ? 0 : Math.max(0, receives - window + 1);
    return { window, sees, receives };
  });
}

const line = 24;

export function Reaches({ picture: p }: { picture: Reach }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const context = p.contextLength > 0 ? p.contextLength : 8192;
  const layers = useMemo(() => atFullContext(p.layers.map((one) => one.window), context), [p, context]);
  const names = width < 480 ? 96 : 150;
  const top = 26;
  const height = top + layers.length * line + 48;
  const x = axis({ label: "position", domain: [0, context] }, names, Math.max(names + 60, width - 24), 90);
  const hasRoom = width - x(p.nTokens) > 190 || x(p.nTokens) < 150;  // for its words
  const marks: Mark[] = layers.map((one, i) => {
    const kept = p.layers[i]!;
    const row = layers.length - 1 - i;  // the last layer on top, as the stream is read upwards
    return {
      x: x((one.sees + context) / 2), y: top + (row + 0.5) * line, series: 0,
      text: `layer ${kept.layer}: ${one.window > 0 ? `window of ${one.window}` : "global"}\nthe last of ${count(context)} tokens sees from position ${count(one.sees)} on`
        + `${one.receives < one.sees ? `\ncontent can have come from position ${count(one.receives)} on, through earlier layers` : ""}\nthis prompt: ${plural(kept.cached, "position")} in the cache, ${bytes(kept.bytes)}`,
    };
  }).reverse();
  return (
    <>
      <div ref={box} style={{ minHeight: px(height) }}>
        {width > 0 && (
          <Drawing label={`What the last of ${count(context)} tokens can reach in each layer, the last layer on top.`} width={width} height={height} marks={marks} reach={2000}>
            {layers.map((one, i) => {
              const y = top + (layers.length - 1 - i) * line;
              return (
                <g key={i}>
                  <text class="bar-name" x={names - 8} y={y + line / 2} dy="0.34em" text-anchor="end">layer {p.layers[i]!.layer}{one.window > 0 ? (width < 480 ? `, ${one.window}` : `, window ${one.window}`) : ""}</text>
                  <rect class="reach-through" x={x(one.receives)} y={y + 3} width={x(context) - x(one.receives)} height={line - 6} />
                  <rect class="reach-direct" x={x(one.sees)} y={y + 3} width={Math.max(1, x(context) - x(one.sees))} height={line - 6} />
                </g>
              );
            })}
            {p.nTokens < context && (
              <g class="rule">
                <line x1={x(p.nTokens)} x2={x(p.nTokens)} y1={top - 4} y2={top + layers.length * line} />
                <text x={x(p.nTokens) + (hasRoom ? 5 : -5)} y={top - 8} text-anchor={hasRoom ? "start" : "end"}>this prompt ends at {count(p.nTokens)}</text>
              </g>
            )}
            <BottomAxis axis={x} y={top + layers.length * line + 4} from={names} to={x(context)} />
          </Drawing>
        )}
      </div>
      <p class="remark">
        For the last token of a full context of {count(context)}. Dark: seen directly. Light: its content can have come through earlier layers. Layers without a window are global.
        {p.layers.every((one) => one.sees === 0) && p.layers.some((one) => one.window > 0) && <> This prompt of {plural(p.nTokens, "token")} fits into every window, so here every layer sees all of it.</>}
      </p>
      <p class="row-title">The cache at {p.contextLength > 0 ? `the full context of ${count(context)}` : count(context)} tokens</p>
      <Bars
        label="Bytes of the cache."
        most={p.bytesAtContextGlobal}
        bars={[
          { name: "allocated", value: p.bytesAtContext, tone: "attention", note: bytes(p.bytesAtContext), text: `allocated\n${count(p.bytesAtContext)} bytes` },
          { name: "all global", value: p.bytesAtContextGlobal, tone: "faint", note: bytes(p.bytesAtContextGlobal), text: `if every layer were global\n${count(p.bytesAtContextGlobal)} bytes` },
        ]}
      />
    </>
  );
}
