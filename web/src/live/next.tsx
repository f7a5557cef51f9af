// The distribution of the next token: what the model says, and what temperature, top-k and top-p make of it.

import { useState } from "preact/hooks";
import { visible } from "../document";
import { Slider } from "../controls";
import { count, percent, plural } from "../format";
import { goOn, setSampling } from "./actions";
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
        <Distribution of={shown} before={changed === null ? null : plain} />
        <p class="remark">{summary(shown, sampling.temperature)}</p>
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

/** Grey: the model's probability; blue: what is left of it for the draw; a mark: before the change. */
export function Distribution({ of, before = null, most = rows }: { of: Next; before?: Next | null; most?: number }) {
  const was = new Map(before?.next.map((one) => [one.token, Math.exp(one.logprob)]));
  // Tokens that were likely before the change stay in sight.
  const list = [...of.next.slice(0, most)];
  for (const one of before?.next.slice(0, 3) ?? [])
    if (!list.some((other) => other.token === one.token)) list.splice(most - 1, 0, of.next.find((other) => other.token === one.token) ?? { ...one, logprob: NaN, kept: 0 });
  const scale = Math.max(...list.map((one) => Math.max(Number.isNaN(one.logprob) ? 0 : Math.exp(one.logprob), one.kept, was.get(one.token) ?? 0)));
  return (
    <ol class="live-bars" aria-label="Most likely next tokens">
      {list.slice(0, most + 1).map((one) => <Row key={one.token} one={one} scale={scale} was={before === null ? undefined : was.get(one.token)} />)}
    </ol>
  );
}

function Row({ one, scale, was }: { one: Likely; scale: number; was: number | undefined }) {
  const rare = Number.isNaN(one.logprob);
  const probability = rare ? 0 : Math.exp(one.logprob);
  const width = (value: number) => `${(100 * value) / scale}%`;
  const drawn = percent(one.kept) === percent(probability) ? "" : one.kept === 0 ? "cut" : `drawn ${percent(one.kept)}`;
  return (
    <li data-token={one.token} data-probability={probability} data-kept={one.kept}>
      <TokenButton of={one} />
      <span class="live-bar" aria-hidden="true">
        <i class="raw" style={{ width: width(probability) }} />
        <i class="kept" style={{ width: width(one.kept) }} />
        {was !== undefined && <i class="was" style={{ left: width(was) }} />}
      </span>
      <span class="live-figure"><b>{rare ? "rare" : percent(probability)}</b> <small>{was !== undefined ? `was ${percent(was)}` : drawn}</small></span>
      <span class="unseen">{visible(one.piece ?? "")}</span>
    </li>
  );
}
