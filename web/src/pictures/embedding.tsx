// The rows of the embedding table: which are alike, what sums of them are near to, and what positions and scales add.

import type { EmbeddingCosine, EmbeddingNeighbors, EmbeddingRescaling, PositionVectors } from "../data";
import { spelling, tokenAt } from "../document";
import { exact, number } from "../format";
import { Bars, Dumbbells } from "../bars";
import { Heat, ScaleKey } from "../heat";
import { XyChart } from "../xychart";
import { linearDomain } from "../axes";
import type { Entry } from "./entry";
import { useMemo } from "preact/hooks";

const two = (value: number) => value.toFixed(2).replace("-", "−");

function Cosine({ picture: p }: { picture: EmbeddingCosine }) {
  const names = useMemo(() => p.ids.map(spelling), [p]);
  const value = useMemo(() => (row: number, col: number) => p.cosine[row]![col]!, [p]);
  return (
    <>
      <Heat
        label="Cosine between embeddings."
        rows={p.ids.length}
        cols={p.ids.length}
        value={value}
        scale="diverging"
        most={1}
        rowNames={names}
        colNames={names}
        cell={46}
        write={two}
        describe={(row, col) => `${names[row]} and ${names[col]}\ncosine ${exact(value(row, col))}\ngroups: ${p.groups[row]}, ${p.groups[col]}\nlengths ${number(p.lengths[row])} and ${number(p.lengths[col])}`}
      />
      <ScaleKey scale="diverging" label="cosine" low="−1 opposite" high="1 same direction" />
    </>
  );
}

export const embeddingCosine: Entry<"embedding-cosine"> = {
  made: ["model"],
  draw: Cosine,
  wide: (p) => p.ids.length > 14,
  table: (p) => ({
    columns: ["token", "group", "length", ...p.ids.map((id, i) => `${i}: ${spelling(id)}`)],
    rows: p.ids.map((id, i) => [spelling(id), p.groups[i]!, p.lengths[i]!, ...p.cosine[i]!]),
    ...(p.missing.length > 0 ? { note: `Not a single token in this vocabulary: ${p.missing.join(", ")}.` } : {}),
  }),
};

function Neighbors({ picture: p }: { picture: EmbeddingNeighbors }) {
  return (
    <>
      <p class="equation" aria-hidden="true">
        {p.terms.map((term, i) => <span key={i}>{i > 0 || term.sign < 0 ? (term.sign > 0 ? " + " : " − ") : ""}<bdi>{spelling(term.id)}</bdi></span>)} ≈ ?
      </p>
      <Bars
        label="Tokens nearest to the sum."
        bars={p.neighbors.map((n) => ({
          name: spelling(n.id),
          value: n.cosine,
          tone: n.term ? "faint" : "attention",
          note: n.term ? `${two(n.cosine)}, part of the sum` : two(n.cosine),
          text: `${spelling(n.id)}\ncosine with the sum ${exact(n.cosine)}${n.term ? "\nitself part of the sum" : ""}\nid ${n.id}`,
        }))}
        most={1}
      />
    </>
  );
}

export const embeddingNeighbors: Entry<"embedding-neighbors"> = {
  made: ["model"],
  draw: Neighbors,
  table: (p) => ({ columns: ["token", "id", "cosine", "part of the sum"], rows: p.neighbors.map((n) => [spelling(n.id), n.id, n.cosine, n.term ? "yes" : "no"]) }),
};

function Positions({ picture: p }: { picture: PositionVectors }) {
  const names = useMemo(() => p.positions.map(String), [p]);
  const value = useMemo(() => (row: number, col: number) => p.cosine[row]![col]!, [p]);
  const chart = useMemo(() => {
    const line = (name: string, tone: string, lengths: number[], what: string) => ({
      name, tone, draw: "both" as const,
      points: lengths.map((y, i) => ({ x: p.positions[i]!, y, text: `${tokenAt(p.positions[i]!)}\nposition ${p.positions[i]}\nlength of ${what} ${exact(y)}` })),
    });
    return {
      x: { label: "position", domain: [0, Math.max(1, p.positions.at(-1) ?? 1)] as const, format: (v: number) => (Number.isInteger(v) ? number(v) : "") },
      y: { label: "length", domain: linearDomain([...p.lengths, ...p.tokenLengths], 0) },
      series: [line("position", "mlp", p.lengths, "the position's vector"), line("token", "attention", p.tokenLengths, "the token's vector")],
    };
  }, [p]);
  return (
    <>
      <Heat
        label="Cosine between position vectors."
        rows={names.length}
        cols={names.length}
        value={value}
        scale="diverging"
        most={1}
        rowNames={names}
        colNames={names}
        colTitle="position"
        cell={34}
        describe={(row, col) => `positions ${names[row]} and ${names[col]}\ncosine ${exact(value(row, col))}`}
      />
      <ScaleKey scale="diverging" label="cosine" low="−1" high="1" />
      <XyChart label="Length of each position's vector and of the token's." {...chart} height={220} />
    </>
  );
}

export const positionVectors: Entry<"position-vectors"> = {
  made: ["run"],
  draw: Positions,
  table: (p) => ({
    columns: ["position", "length", "length of the token's vector", ...p.positions.map((x) => `cosine with ${x}`)],
    rows: p.positions.map((x, i) => [x, p.lengths[i]!, p.tokenLengths[i]!, ...p.cosine[i]!]),
  }),
};

function Rescaling({ picture: p }: { picture: EmbeddingRescaling }) {
  const row = (name: string, s: { with: number; without: number }) => ({
    name,
    from: { value: s.without, name: "as stored", text: `${name}, embeddings as stored\nupdate scale ${exact(s.without)}` },
    to: { value: s.with, name: `× ${number(p.factor, 4)}`, text: `${name}, embeddings × ${number(p.factor, 6)}\nupdate scale ${exact(s.with)}` },
  });
  return (
    <Dumbbells
      label="Update scale of the first layer with the embeddings scaled and as stored."
      axis={{ label: "update scale", domain: [0, 1] }}
      rows={[row("first attention", p.attention), row("first MLP", p.mlp)]}
    />
  );
}

export const embeddingRescaling: Entry<"embedding-rescaling"> = {
  made: ["run"],
  draw: Rescaling,
  table: (p) => ({
    columns: ["", `embeddings × ${number(p.factor, 6)}`, "embeddings as stored"],
    rows: [["σ of the embeddings", p.sigmaWith, p.sigmaWithout], ["update scale, first attention", p.attention.with, p.attention.without], ["update scale, first MLP", p.mlp.with, p.mlp.without]],
  }),
};
