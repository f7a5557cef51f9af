// The most active units of one layer's MLP, what each writes into the vocabulary, and the answer without one of them.

import { useEffect, useState } from "preact/hooks";
import { Slider } from "../controls";
import { named, vitrine } from "../document";
import { count, number } from "../format";
import type { UnitWrites } from "../results";
import { change } from "./actions";
import { unitsCommand } from "./commands";
import { Distribution } from "./next";
import { WithTheProgram } from "./program";
import { promptField, useLive } from "./state";

const unitsShown = 8;
const tokensShown = 4;

/** After the token at a position; a click takes a unit away there. */
export function Units({ active }: { active: boolean }) {
  const { engine, prompt, plain, changed, units } = useLive();
  const [chosen, setPosition] = useState<number | null>(null);
  const last = Math.max((plain?.tokens.length ?? 1) - 1, 0);
  const position = Math.min(chosen ?? last, last);
  const [layer, setLayer] = useState(vitrine.model.nLayers - 2);
  const [found, set] = useState<UnitWrites | null>(null);
  const [lacks, tell] = useState("");
  const at = Math.max(0, Math.min(layer, vitrine.model.nLayers - 1));
  useEffect(() => {
    if (!active || plain === null || engine === null) return;
    let gone = false;
    engine.ask<UnitWrites>("units", { ...promptField(prompt), layer: at, position, units: unitsShown, top: tokensShown }, "units").then((answer) => {
      if (gone || answer === null) return;
      set(answer);
      tell("");
    }).catch((error: unknown) => {
      set(null);
      tell(error instanceof Error ? error.message : String(error));
    });
    return () => {
      gone = true;
    };
  }, [active, plain?.tokens.join(), position, at]);
  const flip = (unit: number, value: number) => {
    const name = `${at}.${unit} at ${position}`;
    const next = new Map(units);
    if (!next.delete(name)) next.set(name, { hook: `blocks.${at}.mlp.hook_post`, positions: [position], do: "add", vector: Array.from({ length: found?.d_ff ?? 0 }, (_, i) => (i === unit ? -value : 0)) });
    change({ units: next });
  };
  return (
    <div class="units" role="group" aria-label="Most active MLP units">
      <p class="live-head">{found === null ? "The most active units" : `The most active of the ${count(found.d_ff)} units, and the tokens that each raises and lowers`}</p>
      <div class="live-row">
        <Slider label="Layer" min={0} max={vitrine.model.nLayers - 1} value={at} onChange={setLayer} says={String(at)} />
        <Slider label="Position" min={0} max={last} value={position} onChange={setPosition} says={`${position}: ${plain === null ? "" : named(plain.pieces[position], plain.tokens[position]!)}`} />
      </div>
      {lacks !== "" && <p class="remark">{lacks}</p>}
      {found !== null && (
        <>
          <div class="table-scroll" tabIndex={0} role="region" aria-label="Units and what they write">
            <table class="unit-list">
              <thead><tr><th scope="col">unit</th><th scope="col">activation</th><th scope="col">raises most</th><th scope="col">lowers most</th></tr></thead>
              <tbody>
                {found.units.map(({ unit, value, promoted, suppressed }) => (
                  <tr key={unit} data-unit={unit}>
                    <th scope="row"><button type="button" class={units.has(`${at}.${unit} at ${position}`) ? "part off" : "part"} aria-pressed={units.has(`${at}.${unit} at ${position}`)} aria-label={`unit ${unit}: take away here`} onClick={() => flip(unit, value)} title="Take this unit away here">{unit}</button></th>
                    <td class="number" data-value={value}>{number(value)}</td>
                    <td><Tokens list={promoted} /></td>
                    <td><Tokens list={suppressed} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <p class="remark">What a unit adds to a token's logit by itself: its column of W_out times its activation, through the norms behind it with the scales of this run, past the later layers, times the token's row of the unembedding. A click on a unit takes it away at this position.</p>
          {changed !== null && units.size > 0 && plain !== null && <Distribution of={changed} before={plain} most={5} />}
          <WithTheProgram commands={[unitsCommand(prompt, at, position, unitsShown, tokensShown)]} />
        </>
      )}
    </div>
  );
}

function Tokens({ list }: { list: UnitWrites["units"][number]["promoted"] }) {
  return <>{list.map((one) => <span key={one.token} class="written" data-token={one.token} data-logit={one.logit}><bdi>{named(one.piece, one.token)}</bdi> <small>{one.logit > 0 ? "+" : ""}{number(one.logit)}</small> </span>)}</>;
}
