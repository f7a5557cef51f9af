// How much each head and MLP raised the chosen token by what it wrote into the residual stream.

import { useState } from "preact/hooks";
import { Choice } from "../../controls";
import { exact, inCell, number, piece } from "../../format";
import { Heat, ScaleKey } from "../../heat";
import { propose } from "../actions";
import { commandLine, Reproduce } from "../reproduce";
import { useApp } from "../state";
import { sameToken } from "../tokens";
import type { Message } from "../tree";
import { useAnswer, type Step } from "./step";
import { Waiting } from "./waiting";

interface Effects {
  layers: { layer: number; heads: (number | null)[]; mlp: number | null }[];
  embed: number | null;
  bias: number | null;
  command?: string;
}

export function Heads({ step, message, at }: { step: Step; message: Message; at: number }) {
  const [against, compare] = useState<"other" | "none">("other");
  const { served } = useApp();
  const token = message.tokens[at]!;
  const other = token.top.find((one) => !sameToken(one, token));
  const paired = against === "other" && step.other !== null;
  const request = { path: "v1/heads", body: { prompt: step.ids, token: step.chosen, ...(paired ? { against: step.other } : {}), position: -1 } };
  const { value, trouble } = useAnswer<Effects>(request);
  return (
    <>
      {step.other !== null && other !== undefined && (
        <Choice label="Score" options={[{ value: "other", name: `instead of ${piece(other.text)}` }, { value: "none", name: "logit" }]} value={against} onChange={compare} />
      )}
      {value === null
        ? <Waiting trouble={trouble} />
        : (
          <>
            <Grid told={value} />
            <Reproduce what="the head scores" request={request} command={value.command ?? commandLine("picture logit-attribution", step.ids, "--json", served)} />
          </>
        )}
    </>
  );
}

function Grid({ told }: { told: Effects }) {
  const heads = Math.max(0, ...told.layers.map((layer) => layer.heads.length));
  const value = (row: number, col: number) => {
    const layer = told.layers[row];
    return (col < heads ? layer?.heads[col] : layer?.mlp) ?? null;
  };
  const most = Math.max(1e-9, ...told.layers.flatMap((layer) => [...layer.heads, layer.mlp]).map((one) => Math.abs(one ?? 0)));
  const name = (row: number, col: number) => `Layer ${told.layers[row]!.layer}, ${col < heads ? `head ${col}` : "MLP"}`;
  return (
    <>
      <p class="remark">What each head and MLP added directly to the chosen token’s logit: blue for it, orange against it. Choose a cell to switch that part off.</p>
      <Heat
        label="Direct effect of each head and MLP."
        rows={told.layers.length}
        cols={heads + 1}
        value={value}
        scale="diverging"
        most={most}
        rowNames={told.layers.map(({ layer }) => String(layer))}
        colNames={[...Array.from({ length: heads }, (_, head) => String(head)), "MLP"]}
        rowTitle="layer"
        colTitle="head"
        cell={44}
        tall={22}
        write={(one) => inCell(one, most)}
        describe={(row, col) => `${name(row, col)}\n${exact(value(row, col))}`}
        onPick={(row, col) => propose({ part: col < heads ? "head" : "mlp", layer: told.layers[row]!.layer, head: Math.min(col, heads - 1) })}
        picks="switches this part off"
      />
      <ScaleKey scale="diverging" low={number(-most)} high={number(most)} label="logit" />
      <p class="remark">The embedding adds {number(told.embed)}, the biases {number(told.bias)}.</p>
    </>
  );
}
