// Which positions each layer can see, which can have come there through the layers before, and what the cache keeps.

import { useMemo } from "preact/hooks";
import { Bars } from "../bars";
import type { Reach } from "../data";
import { place, tokenNames, vitrine } from "../document";
import { count, number, plural } from "../format";
import { Heat } from "../heat";
import type { Entry } from "./entry";

function bytes(n: number): string {
  if (n >= 2 ** 30) return `${number(n / 2 ** 30)} GiB`;
  if (n >= 2 ** 20) return `${number(n / 2 ** 20)} MiB`;
  if (n >= 2 ** 10) return `${number(n / 2 ** 10)} KiB`;
  return `${count(n)} bytes`;
}

const colsShown = 400;

function Reaches({ picture: p }: { picture: Reach }) {
  const block = Math.ceil(p.nTokens / colsShown);
  const cols = Math.ceil(p.nTokens / block);
  // The last layer on top, as the stream is read upwards.
  const layer = (row: number) => p.layers[p.layers.length - 1 - row]!;
  const value = useMemo(() => (row: number, col: number) => {
    const at = layer(row);
    const position = Math.min((col + 1) * block, p.nTokens) - 1;
    return position >= at.sees ? 0.62 : position >= at.receives ? 0.25 : 0;
  }, [p, block]);
  const say = (row: number, position: number) => {
    const at = layer(row);
    if (position >= at.sees) return "seen directly by the last token";
    return position >= at.receives ? "not seen here, but its content can have come through earlier layers" : "out of reach";
  };
  return (
    <>
      <Heat
        label="Positions that the last token can reach in each layer, the last layer on top."
        rows={p.layers.length}
        cols={cols}
        value={value}
        scale="sequential"
        most={1}
        rowNames={p.layers.map((_, row) => `layer ${layer(row).layer}${layer(row).window > 0 ? ` · window ${layer(row).window}` : ""}`)}
        colNames={block === 1 ? tokenNames : []}
        cell={44}
        tall={22}
        ruled
        {...(block > 1 ? { bottomTicks: [{ at: 0, text: "0" }, { at: cols - 1, text: String(p.nTokens - 1) }], bottomTitle: "position" } : {})}
        describe={(row, col) => {
          const at = layer(row);
          const position = Math.min(col * block, p.nTokens - 1);
          return `layer ${at.layer}: ${at.window > 0 ? `window of ${at.window}` : "global"}\n${place(position)}\n${say(row, position)}\ncache: ${plural(at.cached, "position")}, ${bytes(at.bytes)}${at.room > 0 ? `, room for ${count(at.room)}` : ""}`;
        }}
      />
      <p class="remark">Dark: seen directly. Light: its content can have come through earlier layers. Layers without a window are global.</p>
      <p class="row-title">The cache at {vitrine.model.contextLength > 0 ? `the full context of ${count(p.contextLength)}` : "8 192"} tokens</p>
      <Bars
        label="Bytes of the cache."
        most={p.bytesAtContextGlobal}
        bars={[
          { name: "as kept", value: p.bytesAtContext, tone: "attention", note: bytes(p.bytesAtContext), text: `as kept\n${count(p.bytesAtContext)} bytes` },
          { name: "all global", value: p.bytesAtContextGlobal, tone: "faint", note: bytes(p.bytesAtContextGlobal), text: `if every layer were global\n${count(p.bytesAtContextGlobal)} bytes` },
        ]}
      />
    </>
  );
}

export const reach: Entry<"reach"> = {
  draw: Reaches,
  wide: (p) => p.nTokens > 12,
  table: (p) => ({
    columns: ["layer", "window (0: global)", "sees from", "receives from", "cached positions", "room", "bytes"],
    rows: p.layers.map((l) => [l.layer, l.window, l.sees, l.receives, l.cached, l.room, l.bytes]),
  }),
};
