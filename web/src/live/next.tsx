// The distribution of the next token: what the model says, and what temperature, top-k and top-p make of it.

import { useState } from "preact/hooks";
import { Slider } from "../controls";
import { count, percent, plural } from "../format";
import { goOn, setSampling } from "./actions";
import { BeforeAfter, beforeAfter } from "./before-after";
import { generateCommand, interveneCommand, predictCommand } from "./commands";
import { WithTheProgram } from "./program";
import { Recipe } from "./recipe";
import { useLive, type Likely, type Next } from "./state";
import { TokenButton } from "./token";

const rows = 12;

export function NextTokens() {
  const now = useLive();
  const { plain, changed, sampling, prompt } = now;
  const [tokens, setTokens] = useState(20);
  const shown = changed ?? plain;
  if (shown === null) return <p>The engine is starting …</p>;
  return (
    <div class="live-columns">
      <div>
        <Distribution of={shown} />
        <p class="remark">{changed === null ? "" : "The model is changed: these are its answers. "}{summary(shown, sampling.temperature)}</p>
      </div>
      <div>
        <Slider label="Temperature" min={0} max={2} step={0.05} value={sampling.temperature} onChange={(temperature) => setSampling({ temperature })} says={sampling.temperature === 0 ? "0, always the most likely" : sampling.temperature.toFixed(2)} />
        <Slider label="Top-k" min={0} max={40} value={sampling.topK} onChange={(topK) => setSampling({ topK })} says={sampling.topK === 0 ? "off" : `the ${sampling.topK} most likely`} />
        <Slider label="Top-p" min={0.05} max={1} step={0.05} value={sampling.topP} onChange={(topP) => setSampling({ topP: Math.round(100 * topP) / 100 })} says={sampling.topP === 1 ? "off" : sampling.topP.toFixed(2)} />
        <div class="live-row">
          <label>Tokens <input type="number" min={1} max={200} value={tokens} onInput={(event) => setTokens(Math.min(200, Math.max(1, Math.round(Number(event.currentTarget.value)) || 1)))} /></label>
          <label>Seed <input type="number" min={0} max={999999} value={sampling.seed} onInput={(event) => setSampling({ seed: Math.max(0, Math.round(Number(event.currentTarget.value)) || 0) })} /></label>
          <button type="button" onClick={() => void goOn(tokens)}>Continue {plural(tokens, "token")}</button>
        </div>
        {changed === null
          ? <WithTheProgram commands={[predictCommand(prompt, sampling), generateCommand(prompt, sampling, tokens)]} />
          : <Recipe now={now} commands={[interveneCommand(), generateCommand(prompt, sampling, tokens, true)]} key={prompt} />}
      </div>
    </div>
  );
}

function summary(next: Next, temperature: number): string {
  const all = next.left;
  return temperature === 0 ? "At temperature 0 the most likely token is taken." : `One token is drawn from ${all === 1 ? "this one" : `${count(all)} that are left`}. A click on a token appends it.`;
}

/** Likely tokens, and what they were before a change. */
export function Distribution({ of, before = null, most = rows }: { of: Next; before?: Next | null; most?: number }) {
  const sampled = before === null && of.next.some((one) => percent(one.kept) !== percent(Math.exp(one.logprob)));
  const list = listed(of, before, most);
  const was = new Map(before?.next.map((one) => [one.token, Math.exp(one.logprob)]));
  return (
    <BeforeAfter
      label="Most likely next tokens"
      unit="%"
      names={sampled ? ["of the model", "in the draw"] : beforeAfter}
      rows={list.map((one) => {
        const probability = one.known ? Math.exp(one.logprob) : null;
        return {
          key: one.token,
          name: <TokenButton of={one} />,
          before: sampled ? probability : was.get(one.token) ?? null,
          after: sampled ? one.kept : probability,
          lacks: below(one.known ? before : of),
          data: { "data-token": one.token, "data-probability": probability ?? 0, "data-kept": one.kept },
        };
      })}
    />
  );
}

/** The most likely tokens; those that were likely before a change stay in sight. `known`: the answer has its probability. */
function listed(of: Next, before: Next | null, most: number): (Likely & { known: boolean })[] {
  const list = of.next.slice(0, most).map((one) => ({ ...one, known: true }));
  for (const one of before?.next.slice(0, 3) ?? []) {
    if (list.some((other) => other.token === one.token)) continue;
    const now = of.next.find((other) => other.token === one.token);
    list.push(now === undefined ? { ...one, kept: 0, known: false } : { ...now, known: true });
  }
  return list;
}

/** What can be said of a token that an answer does not list: it is less likely than all that it lists. */
function below(answer: Next | null): string {
  const least = answer?.next.at(-1);
  return least === undefined ? "–" : `< ${percent(Math.exp(least.logprob)).replace(/^< /, "")}`;
}
