// From the string to tokens: the pieces over their bytes, the merges that built them, and other ways to cut the string.

import { useMemo, useState } from "preact/hooks";
import { Slider } from "../controls";
import type { Merges, Splits, TokensPicture } from "../data";
import { spelling, tokenAt, visible, vitrine } from "../document";
import { count, number, percent, plural, short } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";
import { hideTip, showTip } from "../tip";

const lastShown = 120;

function hex(byte: number): string {
  return byte.toString(16).padStart(2, "0");
}

export function Tokens({ picture }: { picture: TokensPicture }) {
  const [all, showAll] = useState(false);
  const { tokens } = vitrine;
  // The end of a long prompt: the answer follows it.
  const from = all ? 0 : Math.max(0, tokens.length - lastShown);
  const shown = tokens.slice(from);
  const describe = (position: number) => {
    const token = tokens[position]!;
    const span = token.offsets === null ? "" : token.offsets[0] === token.offsets[1] ? "\nstands for no bytes" : `\nbytes ${token.offsets[0]} to ${token.offsets[1] - 1}`;
    return `${tokenAt(position)}\nid ${token.id} of ${count(picture.vocabSize)}\nposition ${position}${span}${token.control ? "\ncontrol token" : ""}`;
  };
  return (
    <div class="token-row">
      {from > 0 && <button type="button" class="more" onClick={() => showAll(true)}>… {count(from)} tokens before these: show all</button>}
      {shown.map((token, i) => {
        const position = from + i;
        const bytes = token.offsets === null || picture.bytes === null ? [] : picture.bytes.slice(token.offsets[0], token.offsets[1]);
        const show = (element: HTMLElement, aloud: boolean) => {
          const box = element.getBoundingClientRect();
          showTip(describe(position), box.left + box.width / 2, box.top, aloud);
        };
        return (
          <button
            type="button"
            key={position}
            class={`token${token.control ? " control" : ""}`}
            onPointerMove={(event) => show(event.currentTarget, false)}
            onPointerLeave={hideTip}
            onFocus={(event) => event.currentTarget.matches(":focus-visible") && show(event.currentTarget, false)}
            onBlur={hideTip}
          >
            <bdi class="token-piece">{tokenAt(position)}</bdi>
            <span class="token-bytes" aria-hidden="true">{bytes.length === 0 ? <i>–</i> : bytes.slice(0, 24).map((byte, i) => <i key={i}>{hex(byte)}</i>)}</span>
            <span class="token-id">{token.id}</span>
            <span class="unseen">{describe(position).split("\n").slice(2).join(", ")}</span>
          </button>
        );
      })}
    </div>
  );
}

interface Node {
  text: string;
  /** Columns of leaves that it covers, [from, to). */
  from: number;
  to: number;
  /** 0 for a leaf, else one more than its deeper child. */
  depth: number;
  /** Which merge made it; -1: a leaf. */
  step: number;
  children: Node[];
}

/** One tree per final token, with leaves numbered from 0 in each. */
function grow(picture: Merges): Node[] {
  const list: Node[] = picture.start.map((part, i) => ({ text: visible(part.piece), from: i, to: i + 1, depth: 0, step: -1, children: [] }));
  picture.steps.forEach((step, index) => {
    const [left, right] = [list[step.at], list[step.at + 1]];
    if (left === undefined || right === undefined) return;
    const node: Node = { text: visible(step.piece), from: left.from, to: right.to, depth: Math.max(left.depth, right.depth) + 1, step: index, children: [left, right] };
    list.splice(step.at, 2, node);
  });
  return list;
}

function walk(node: Node, visit: (node: Node, parent: Node | null) => void, parent: Node | null = null): void {
  visit(node, parent);
  for (const child of node.children) walk(child, visit, node);
}

const rowHeight = 34;
const treesShown = 40;

export function MergeTrees({ picture }: { picture: Merges }) {
  const last = picture.steps.length;
  const [done, set] = useState(last);
  const [all, showAll] = useState(false);
  const trees = useMemo(() => grow(picture), [picture]);
  const shown = all ? trees : trees.slice(-treesShown);
  const now = done === 0 ? undefined : picture.steps[done - 1];
  const says = now === undefined
    ? `before the first of ${plural(last, "merge")}`
    : `merge ${done} of ${last}: ${spelling(now.left)} + ${spelling(now.right)} → ${visible(now.piece)}`;
  return (
    <div>
      <Slider label="Merges done" min={0} max={last} value={done} onChange={set} says={says} />
      <div class="trees">
        {shown.map((tree) => <Tree key={tree.from} tree={tree} done={done} picture={picture} />)}
      </div>
      {shown.length < trees.length && <button type="button" class="more" onClick={() => showAll(true)}>These are the last {shown.length} trees: show all {count(trees.length)}</button>}
    </div>
  );
}

function Tree({ tree, done, picture }: { tree: Node; done: number; picture: Merges }) {
  const widths: number[] = [];
  walk(tree, (node) => {
    if (node.children.length === 0) widths[node.from - tree.from] = Math.max(26, [...node.text].length * 8.6 + 12);
  });
  // A merged piece may be longer than its leaves together where a leaf is a byte; leaves then share the rest.
  const need = [...tree.text].length * 8.8 + 14;
  const have = widths.reduce((a, b) => a + b, 0);
  const spread = Math.max(1, need / have);
  const edges = [0];
  for (const width of widths) edges.push(edges.at(-1)! + width * spread);
  const [width, height] = [edges.at(-1)! + 6, tree.depth * rowHeight + 34];
  const nodes: { node: Node; parent: Node | null }[] = [];
  walk(tree, (node, parent) => nodes.push({ node, parent }));
  nodes.reverse();
  const x = (node: Node) => 3 + (edges[node.from - tree.from]! + edges[node.to - tree.from]!) / 2;
  const y = (node: Node) => height - 17 - node.depth * rowHeight;
  const marks: Mark[] = nodes.map(({ node }, i) => {
    const step = picture.steps[node.step];
    return { x: x(node), y: y(node), series: i, text: step === undefined ? `${node.text}\na part before any merge` : `${node.text}\nmerge ${node.step + 1}: ${spelling(step.left)} + ${spelling(step.right)}\norder ${count(step.order)}, id ${step.id}` };
  }).map((mark) => ({ ...mark, series: 0 }));
  return (
    <Drawing label={`Merges that made ${tree.text}.`} width={width} height={height} marks={marks} reach={30} class="tree">
      {nodes.map(({ node, parent }, i) => parent !== null && (
        <path key={i} class={parent.step < done ? "branch" : "branch later"} d={`M${x(node)},${y(node) - 11}V${y(parent) + 20}H${x(parent)}V${y(parent) + 11}`} />
      ))}
      {nodes.map(({ node }, i) => {
        const wide = Math.min([...node.text].length * 8.6 + 12, width - 2);
        const state = node.step >= done ? "later" : node.step === done - 1 && done > 0 ? "now" : node === tree ? "end" : "";
        return (
          <g key={i} class={`part ${state}`} transform={`translate(${x(node)},${y(node)})`}>
            <rect x={-wide / 2} y={-12} width={wide} height={24} rx={4} />
            <text dy="0.34em" text-anchor="middle">{node.text}</text>
          </g>
        );
      })}
    </Drawing>
  );
}

export function SplitRows({ picture }: { picture: Splits }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const most = Math.max(...picture.splits.map((s) => s.bitsPerByte));
  const chosen = picture.splits.find((s) => s.chosen);
  const say = (s: Splits["splits"][number]) =>
    `${s.pieces.map(visible).join(" | ")}\nln p = ${number(s.logprob, 6)}\n${number(s.bitsPerByte, 5)} bits per byte`
    + (s.chosen || chosen === undefined ? "\nwhat the tokenizer chooses" : `\n${percent(Math.exp(s.logprob - chosen.logprob))} as likely as the tokenizer's`);
  return (
    <div ref={box} class="splits">
      {width > 0 && picture.splits.map((s, i) => {
        const show = (element: HTMLElement) => {
          const area = element.getBoundingClientRect();
          showTip(say(s), area.left + 40, area.top);
        };
        return (
          <button
            type="button"
            key={i}
            class={`split${s.chosen ? " chosen" : ""}`}
            onPointerMove={(event) => show(event.currentTarget)}
            onPointerLeave={hideTip}
            onFocus={(event) => event.currentTarget.matches(":focus-visible") && show(event.currentTarget)}
            onBlur={hideTip}
          >
            <span class="split-pieces">{s.pieces.slice(0, 60).map((text, j) => <bdi key={j}>{short(visible(text), 24)}</bdi>)}{s.pieces.length > 60 && <i>and {s.pieces.length - 60} more</i>}</span>
            <span class="split-bar" aria-hidden="true">
              <i style={{ width: `${(100 * s.bitsPerByte) / most}%` }} />
              <b>{number(s.bitsPerByte)} bits per byte{s.chosen ? ", the tokenizer's own" : ""}</b>
            </span>
            <span class="unseen">{say(s).split("\n").slice(1).join(", ")}</span>
          </button>
        );
      })}
    </div>
  );
}
