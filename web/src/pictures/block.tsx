// One block in the order of its parts: the stream as a line, and a branch through each part that comes back to it at a plus sign.

import { number, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";
import type { BlockDiagram } from "../data";

const boxHeight = 34;
const gap = 20;

interface Box {
  y: number;
  words: string;
  tone: string;
  heads: number;
}

/** Where each part of the drawing stands, from top to bottom. */
function layout(p: BlockDiagram) {
  let y = 18;
  const parts = p.parts.map((part, i) => {
    const split = y + 24;
    let at = split;
    const boxes: Box[] = [];
    const box = (words: string | null, tone: string, heads = 0) => {
      if (words === null) return;
      boxes.push({ y: at + gap, words, tone, heads });
      at += gap + boxHeight;
    };
    const tone = part.id === "attention" ? "attention" : "mlp";
    box(part.normBefore, "plain");
    box(part.title, tone, part.heads ?? 0);
    box(part.normBehind, "plain");
    box(part.factor === null ? null : `× ${number(part.factor)}`, "plain");
    const plus = at + 26;
    const norm = part.normAfter === null ? null : plus + 24;
    y = (norm === null ? plus + 10 : norm + boxHeight) + 22;
    return { part, tone, split, boxes, branch: at, plus, norm, below: y, length: p.lengths[i + 1] ?? null };
  });
  return { parts, height: y + 26 };
}

export function Block({ picture: p }: { picture: BlockDiagram }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const { parts, height } = layout(p);
  const stream = 46;
  const left = 92;
  const wide = Math.max(120, Math.min(340, width - left - 8));
  const middle = left + wide / 2;
  const marks: Mark[] = parts.flatMap(({ part, plus, boxes }) => [
    ...boxes.map((one) => ({ x: middle, y: one.y + boxHeight / 2, series: 0, text: `${one.words}\n${part.id === "attention" ? "attention" : "MLP"} of layer ${p.layer}: ${part.words}` })),
    { x: stream, y: plus, series: 1, text: `${part.hook}\nlength ${number(part.length)} at the last token; the stream is then ${number(part.streamLength)} long` },
  ]);
  const length = (value: number | null) => (value === null ? "" : `length ${number(value)}`);
  return (
    <div ref={box} style={{ minHeight: px(height) }}>
      {width > 0 && (
        <Drawing label={`Layer ${p.layer}: ${p.parts.map((part) => part.words).join("; ")}.`} width={width} height={height} marks={marks} reach={400}>
          <text x={stream + 10} y={14}>stream, {length(p.lengths[0] ?? null)}</text>
          {parts.map(({ part, tone, split, boxes, branch, plus, norm, below, length: after }, i) => (
            <g key={part.id}>
              <path class="line stream-line" d={`M${stream},${i === 0 ? 8 : parts[i - 1]!.below}V${part.adds ? plus - 10 : split}M${stream},${part.adds ? plus + 10 : plus}V${norm ?? below}${norm === null ? "" : `M${stream},${norm + boxHeight}V${below}`}`} />
              <path class={`vector ${tone}`} fill="none" d={`M${stream},${split}H${middle}V${branch}M${middle},${branch}V${plus}H${stream + (part.adds ? 10 : 0)}`} />
              {boxes.map((one) => (
                <g key={one.y} class={`block-box ${one.tone}`}>
                  <rect x={left} y={one.y} width={wide} height={boxHeight} rx={4} />
                  <text x={middle} y={one.y + (one.heads > 0 ? 14 : boxHeight / 2)} dy="0.34em" text-anchor="middle">{one.words}</text>
                  {Array.from({ length: Math.min(one.heads, 32) }, (_, h) => {
                    const step = Math.min(14, (wide - 20) / Math.min(one.heads, 32));
                    return <rect key={h} class="head-mark" x={middle + (h - Math.min(one.heads, 32) / 2) * step + step * 0.15} y={one.y + boxHeight - 10} width={step * 0.7} height={5} />;
                  })}
                </g>
              ))}
              {part.adds && (
                <g class="node plain">
                  <circle cx={stream} cy={plus} r={10} />
                  <text x={stream} y={plus} dy="0.34em" text-anchor="middle">+</text>
                </g>
              )}
              <text x={stream + 18} y={plus - 8}>{part.adds ? "adds" : "replaces"}, {length(part.length)}</text>
              {norm !== null && (
                <g class="block-box plain">
                  <rect x={4} y={norm} width={84} height={boxHeight} rx={4} />
                  <text x={stream} y={norm + boxHeight / 2} dy="0.34em" text-anchor="middle">{part.normAfter}</text>
                </g>
              )}
              <text x={stream + 10} y={below + 4}>{length(after)}</text>
            </g>
          ))}
          <path class="line stream-line" d={`M${stream},${parts.at(-1)?.below ?? 8}V${height - 4}`} />
        </Drawing>
      )}
    </div>
  );
}
