// Which head reads from which: composition scores as sentences, and as a grid of heads by heads.

import { useMemo, useState } from "preact/hooks";
import { Choice, Copyable } from "../controls";
import { Figure } from "../figure";
import { number } from "../format";
import { Heat, ScaleKey } from "../heat";
import type { CircuitsData, Composition } from "../results";
import { Picked } from "./shared";
import { copyingWords, kinds, pairWords, reader, writer } from "./words";

const choices = kinds.map(({ key, name }) => ({ value: key, name: `its ${name}` }));
/** Heads that a side of the grid has room for. */
const room = 64;

function Grid({ circuits, options, prompt }: Props) {
  const [kind, choose] = useState<(typeof kinds)[number]["key"]>("k");
  const [picked, pick] = useState<Composition | null>(null);
  const pairs = circuits.composition;
  const from = useMemo(() => [...new Set(pairs.map(writer))], [circuits]);
  const to = useMemo(() => [...new Set(pairs.map(reader))], [circuits]);
  const byPlace = useMemo(() => new Map(pairs.map((pair) => [`${reader(pair)} ${writer(pair)}`, pair])), [circuits]);
  const most = useMemo(() => Math.max(1e-9, ...pairs.flatMap((pair) => [pair.q, pair.k, pair.v])), [circuits]);
  const at = (row: number, col: number) => byPlace.get(`${to[row]!} ${from[col]!}`);
  const value = useMemo(() => (row: number, col: number) => at(row, col)?.[kind] ?? null, [circuits, kind]);
  if (pairs.length === 0 || from.length > room || to.length > room) return null;
  return (
    <>
      <Choice label="What the later head reads with" options={choices} value={kind} onChange={choose} />
      <Heat
        label="Composition of a later head with an earlier one."
        rows={to.length}
        cols={from.length}
        value={value}
        scale="sequential"
        most={most}
        rowNames={to}
        colNames={from}
        rowTitle="reads"
        colTitle="writes"
        describe={(row, col) => {
          const pair = at(row, col);
          return pair === undefined ? `${to[row]!} does not come after ${from[col]!}` : pairWords(pair, kind);
        }}
        picks="how to measure it"
        onPick={(row, col) => pick(at(row, col) ?? null)}
        cell={30}
        tall={22}
      />
      <ScaleKey scale="sequential" low="0" high={number(most)} label="composition score" />
      {picked !== null && (
        <Picked title={pairWords(picked, kind)}>
          <Copyable label="circuits command" text={`vitrine circuits${options} --layer ${picked.to_layer} --head ${picked.to_head} --compositions 5 ${prompt}`} />
        </Picked>
      )}
    </>
  );
}

interface Props {
  circuits: CircuitsData;
  options: string;
  prompt: string;
}

export function Compositions(props: Props) {
  const { circuits } = props;
  const top = circuits.links.slice(0, 8);
  return (
    <Figure
      name="compositions"
      wide={false}
      alone={false}
      made={["model"]}
      title="Which head reads from which"
      alt={top.map((link) => `${link.words}, ${number(link.score)}`).join("; ")}
      caption="The composition score |A B| / (|A| |B|) of what an earlier head writes (its OV circuit) with what a later head reads it by: its queries, its keys, or its values. It is a matter of the weights alone, so a high score says that the path is wide, not that it is used here."
      table={() => ({
        columns: ["layer", "head", "copying", "rank of QK", "rank of OV", "in words"],
        rows: circuits.heads.map((head) => [head.layer, head.head, head.copying, head.qk_rank, head.ov_rank, copyingWords(head.copying)]),
      })}
    >
      <ol class="sentences">{top.map((link) => <li key={link.words}>{link.words} <small>{number(link.score)}</small></li>)}</ol>
      <Grid {...props} />
    </Figure>
  );
}
