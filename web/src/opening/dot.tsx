// One dot product: the query of the token that looks times the key of the token it looks at, component by component, and how the
// product becomes a weight.

import { useEffect, useState } from "preact/hooks";
import { commandLine, named, vitrine } from "../document";
import { Copyable } from "../controls";
import { number, percent } from "../format";
import { hooksOf, rowOf, type Row } from "../live/row";
import { edits, promptField, useLive } from "../live/state";
import type { Run } from "./run";

interface Hook {
  name: string;
  shape: number[];
  values: unknown;
}

interface Seen {
  row: Row;
  /** q[i] · k[i]. */
  products: number[];
}

interface Props {
  run: Run;
  names: readonly string[];
  layer: number;
  head: number;
  query: number;
  chosen: number;
}

export function DotProduct({ run, names, layer, head, query, chosen }: Props) {
  const now = useLive();
  const { engine, prompt, drawing } = now;
  const changes = edits(now);
  const [seen, set] = useState<Seen | null>(null);
  const [trouble, tell] = useState("");
  const key = [layer, head, query, chosen, vitrine.prompt.ids.join(), JSON.stringify(changes)].join(" ");
  useEffect(() => {
    set(null);
    if (engine === null || drawing) return;
    let gone = false;
    engine.ask<{ hooks: Hook[] }>("inspect", { ...promptField(prompt), hooks: hooksOf(layer, head, query), ...(changes.length === 0 ? {} : { edits: changes }) }, "opening-dot").then((answer) => {
      if (gone || answer === null) return;
      const vectors = (end: string) => (answer.hooks.find((hook) => hook.name.endsWith(end))!.values as number[][][]).map((one) => one[0]!);
      const [q, k] = [vectors("q")[0]!, vectors("k")[chosen]!];
      set({ row: rowOf(answer.hooks, vitrine.tokens.map((token) => named(token.piece, token.id)), query), products: q.map((x, i) => x * k[i]!) });
      tell("");
    }).catch((error: unknown) => {
      if (!gone) tell(error instanceof Error ? error.message : String(error));
    });
    return () => {
      gone = true;
    };
  }, [key, engine, drawing]);
  const [from, to] = [names[query - run.first]!, names[chosen - run.first]!];
  const weight = run.weight(layer, head, query - run.first, chosen - run.first);
  return (
    <>
      <p>One dot product. In this head <bdi>{from}</bdi> has a query, what it looks for, and <bdi>{to}</bdi> a key, what it can be found by: {vitrine.model.headDim} numbers each. Multiplied number by number and added up they give a score; the scores of the row become weights that add up to 100 %. Here the weight is <b>{percent(weight)}</b>.</p>
      {trouble !== "" && <p role="alert">{trouble}</p>}
      {seen !== null && <Products seen={seen} chosen={chosen} />}
      {engine === null && <Copyable text={commandLine("trace", `${hooksOf(layer, head, query).slice(0, 2).map((hook) => `--hooks '${hook}'`).join(" ")} --out values.safetensors`)} label="command that writes this query and the keys" />}
    </>
  );
}

const high = 84;

function Products({ seen: { row, products }, chosen }: { seen: Seen; chosen: number }) {
  const cap = vitrine.model.attentionSoftcap;
  const most = Math.max(...products.map(Math.abs), 1e-12);
  const step = 100 / products.length;
  const score = row.scores[chosen];
  return (
    <>
      <svg class="closer-products" viewBox={`0 0 100 ${high}`} preserveAspectRatio="none" role="img" aria-label={`The ${products.length} products that make the dot product: the largest is ${number(Math.max(...products))}, the smallest ${number(Math.min(...products))}.`}>
        <line x1="0" x2="100" y1={high / 2} y2={high / 2} />
        {products.map((product, i) => {
          const size = (Math.abs(product) / most) * (high / 2 - 2);
          return <rect key={i} class={product < 0 ? "less" : ""} x={i * step + step * 0.1} width={step * 0.8} y={product < 0 ? high / 2 : high / 2 - size} height={size} />;
        })}
      </svg>
      <p class="closer-sum">
        {products.length} products add up to <b data-dot={row.dots[chosen]}>q·k = {number(row.dots[chosen], 4)}</b>; times {number(row.scale, 4)} (1/√{number(1 / row.scale ** 2, 4)}) that is {number(row.scaled[chosen], 4)}
        {cap > 0 && <>; the soft cap of {cap} leaves {number(row.capped[chosen], 4)}</>}.
        {score === null ? " This token cannot be seen: it lies outside the window." : <> e to this power, divided by the sum over all tokens that can be seen: <b>{percent(row.weights[chosen]!)}</b>.</>}
      </p>
    </>
  );
}
