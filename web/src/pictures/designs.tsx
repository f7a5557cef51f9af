// Published designs drawn to one scale, and ways in which query heads share keys and values.

import type { Designs, HeadSharing } from "../data";
import { amount, count, number, plural, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";

const tall = 260;
const edge = 8;  // left of the first name

/** Layers of one kind that follow each other. */
function runs(windows: readonly (number | null)[]): { window: number | null; from: number; to: number }[] {
  const found: { window: number | null; from: number; to: number }[] = [];
  windows.forEach((window, layer) => {
    const last = found.at(-1);
    if (last !== undefined && last.window === window) last.to = layer + 1;
    else found.push({ window, from: layer, to: layer + 1 });
  });
  return found;
}

export function SideBySide({ picture: p }: { picture: Designs }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const gap = width < 480 ? 6 : 12;
  const across = Math.max(0, width - edge - gap * p.designs.length) / p.designs.reduce((sum, d) => sum + d.dModel, 0);
  const up = tall / Math.max(...p.designs.map((d) => d.layers + d.embeddingInLayers + d.headInLayers));
  const bottom = tall + 8;
  let left = edge;
  const columns = p.designs.map((d) => {
    const w = Math.max(1.5, d.dModel * across);
    const x = left;
    left += w + gap;
    return { d, x, w };
  });
  const marks: Mark[] = columns.map(({ d, x, w }) => ({
    x: x + w / 2, y: bottom - ((d.embeddingInLayers + d.layers / 2) * up), series: 0,
    text: `${d.title}\n${amount(d.parameters.total)} parameters: embedding ${amount(d.parameters.embedding)}, attention ${amount(d.parameters.attention)}, MLP ${amount(d.parameters.mlp)}\n${plural(d.layers, "layer")} of width ${count(d.dModel)}; window ${d.window}\n${amount(d.multiplyAdds.total)} multiply-adds for a token, cache ${number(d.cacheBytes / 2 ** 20)} MiB at ${count(d.comparedPositions)}`,
  }));
  const names = 250;
  return (
    <div ref={box} style={{ minHeight: px(bottom + names) }}>
      {width > 0 && (
        <Drawing label={`${p.designs.length} designs drawn to one scale.`} width={width} height={bottom + names} marks={marks} reach={2000} class="designs">
          {columns.map(({ d, x, w }) => {
            const attention = w * d.attentionShare;
            const first = bottom - d.embeddingInLayers * up;
            return (
              <g key={d.title} class={d.own ? "own" : ""}>
                <rect class="design-table" x={x} y={first} width={w} height={d.embeddingInLayers * up} />
                <rect class="design-mlp" x={x + attention} y={first - d.layers * up} width={w - attention} height={d.layers * up} />
                {runs(d.windows).map(({ window, from, to }) => (
                  <rect key={from} class={window === null ? "design-recurrent" : window > 0 ? "design-local" : "design-attention"} x={x} y={first - to * up} width={attention} height={(to - from) * up} />
                ))}
                <rect class="design-table" x={x} y={first - (d.layers + d.headInLayers) * up} width={w} height={d.headInLayers * up} />
                <text class="bar-name" transform={`translate(${x + w / 2 + 4},${bottom + 8})rotate(-90)`} text-anchor="end">{d.title}: {amount(d.parameters.total)}</text>
              </g>
            );
          })}
          <line class="base" x1={0} x2={width} y1={bottom} y2={bottom} />
        </Drawing>
      )}
      <p class="remark designs-key">
        <span class="design-key attention" /> attention <span class="design-key local" /> attention within a window <span class="design-key recurrent" /> recurrence <span class="design-key mlp" /> MLP <span class="design-key table" /> embedding, head
      </p>
    </div>
  );
}

export function Sharing({ picture: p }: { picture: HeadSharing }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const high = 124;
  const narrow = width < 560;
  const room = narrow ? width : width * 0.66;
  const most = Math.max(...p.kinds.map((kind) => kind.bytes));
  const each = narrow ? high + 44 : high;
  const rows = p.kinds.map((kind, row) => {
    const step = Math.min(room / kind.heads, 30);
    return { kind, top: row * each, step, size: step * 0.7 };
  });
  const marks: Mark[] = rows.map(({ kind, top }, i) => ({
    x: Math.min(room, width) / 2, y: top + 60, series: i,
    text: `${kind.title}\n${plural(kind.heads, "query head")}, ${plural(kind.kvHeads, "key and value head")}: ${plural(kind.headsEach, "query head")} to each\n${count(kind.bytesPerPosition)} bytes of cache a position, ${number(kind.bytes / 2 ** 20)} MiB at ${count(p.positions)}`,
  }));
  return (
    <div ref={box} style={{ minHeight: px(each * rows.length) }}>
      {width > 0 && (
        <Drawing label="Ways to share keys and values, with the size of the cache." width={width} height={each * rows.length} marks={marks} reach={2000} class="sharing">
          {rows.map(({ kind, top, step, size }, row) => {
            const barX = narrow ? 0 : room + 24;
            const barY = narrow ? top + high - 8 : top + 44;
            return (
              <g key={row}>
                <text class="bar-name" x={0} y={top + 16}>{kind.title}</text>
                {Array.from({ length: kind.kvHeads }, (_, g) => {
                  const middle = step * (g + 0.5) * kind.headsEach;
                  return (
                    <g key={g}>
                      {Array.from({ length: kind.headsEach }, (_, i) => {
                        const x = step * (g * kind.headsEach + i + 0.5);
                        return (
                          <g key={i}>
                            <line class="thread" x1={x} x2={middle} y1={top + 28 + size} y2={top + 84} />
                            <rect class="design-attention" x={x - size / 2} y={top + 28} width={size} height={size} rx={2} />
                          </g>
                        );
                      })}
                      <rect class="design-mlp" x={middle - size / 2} y={top + 84} width={size} height={size} rx={2} />
                    </g>
                  );
                })}
                <rect class="design-mlp" x={barX} y={barY} width={Math.max(1, (kind.bytes / most) * (width - barX - 8))} height={14} rx={2} />
                <text class="bar-note" x={barX} y={barY + 30}>{number(kind.bytes / 2 ** 20)} MiB of cache</text>
              </g>
            );
          })}
        </Drawing>
      )}
    </div>
  );
}
