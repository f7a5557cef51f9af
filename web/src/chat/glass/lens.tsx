// The logit lens: what each layer would have predicted, had it been the last one.

import { Cells } from "../../cells";
import { percent, piece } from "../../format";
import type { LensReading } from "../../results";
import { commandLine, Reproduce } from "../reproduce";
import { useApp } from "../state";
import { useAnswer, type Step } from "./step";
import { Waiting } from "./waiting";

interface Lenses {
  layers: { name: string; positions: LensReading[] }[];
  command?: string;
}

const top = 5;

export function Lens({ step }: { step: Step }) {
  const request = { path: "v1/lens", body: { prompt: step.ids, positions: [-1], top } };
  const { value, trouble } = useAnswer<Lenses>(request);
  const { served } = useApp();
  if (value === null) return <Waiting trouble={trouble} />;
  const rows = value.layers.map(({ name, positions }) => ({ name: layerName(name), top: positions[0]?.top ?? [] }));
  return (
    <>
      <p class="remark">The most likely tokens after each layer, read through the final norm and the output matrix. The stronger the color, the more likely. The token that was chosen is framed.</p>
      <Cells
        label="Predictions after each layer."
        rowNames={rows.map((row) => row.name)}
        colNames={Array.from({ length: top }, (_, rank) => ["1st", "2nd", "3rd", "4th", "5th"][rank]!)}
        column={70}
        cell={(r, rank) => {
          const one = rows[r]?.top[rank];
          if (one === undefined) return { word: "–", share: 0, text: "nothing" };
          const share = one.prob;
          const word = piece(one.piece ?? `#${one.token}`);
          return { word, note: percent(share), share, framed: one.token === step.chosen, text: `${word}\n${percent(share)} after ${rows[r]!.name}` };
        }}
      />
      <Reproduce what="the logit lens" request={request} command={value.command ?? commandLine("picture logit-lens", step.ids, "--json", served)} />
    </>
  );
}

/** The stream before the first layer is the embedding. */
function layerName(hook: string): string {
  if (hook === "hook_embed" || hook === "blocks.0.hook_resid_pre") return "embedding";
  const layer = /^blocks\.(\d+)\./.exec(hook)?.[1];
  return layer === undefined ? hook : `layer ${layer}`;
}
