// One step of gradient descent on the reader's sentence: what should have come next, and what the model says afterwards.

import { useState } from "preact/hooks";
import { Bars } from "../bars";
import { Slider } from "../controls";
import { number } from "../format";
import type { OneStep } from "../results";
import { BeforeAfter } from "./before-after";
import { tokenPairs } from "./token";
import { trainCommand } from "./commands";
import { WithTheProgram } from "./program";
import { byIds, useLive } from "./state";
import { written } from "./written";

interface Made {
  prompt: string;
  target: string;
  rate: number;
  step: OneStep;
  seconds: number;
}

export function TrainStep() {
  const { engine, prompt, plain } = useLive();
  // Unless the reader writes one, the runner-up: something that the model does not say already.
  const [own, setTarget] = useState<string | null>(null);
  const target = own ?? plain?.next.slice(1).map((one) => written(one.piece ?? "")).find((text) => text?.trim()) ?? "";
  const [exponent, setExponent] = useState(-2.5);
  const [made, set] = useState<Made | null>(null);
  const [said, say] = useState("");
  const rate = Number((10 ** exponent).toPrecision(2));
  if (byIds()) return <p>A step of training needs a text, and this page's prompt is given as ids.</p>;
  const run = async () => {
    if (engine === null) return;
    if (target === "") return say("Write what should follow the prompt.");
    say("Training …");
    const from = performance.now();
    try {
      const step = await engine.askApart<OneStep>("train", { prompt, target, rate, top: 8 });
      set({ prompt, target, rate, step, seconds: (performance.now() - from) / 1000 });
      say("");
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <p>The model is told once what should follow the prompt, and every weight moves a little against the gradient of the loss. The page's own model stays as it is.</p>
      <label class="live-wide">Should follow <input type="text" value={target} onInput={(event) => setTarget(event.currentTarget.value)} /></label>
      <div class="live-row">
        <Slider label="Learning rate" min={-5} max={-1} step={0.25} value={exponent} onChange={setExponent} says={number(rate)} />
        <button type="button" disabled={said === "Training …"} onClick={() => void run()}>Train one step</button>
        <span role="status">{said}</span>
      </div>
      {made !== null && <Result made={made} />}
    </>
  );
}

function Result({ made: { prompt, target, rate, step, seconds } }: { made: Made }) {
  const most = Math.max(...step.layers.map((layer) => layer.gradient_norm));
  return (
    <>
      <p class="live-head">The loss on “{target}” falls from {number(step.loss_before, 4)} to {number(step.loss_after, 4)} ({seconds.toFixed(1)} s)</p>
      <BeforeAfter label="Most likely next tokens before and after the step" unit="%" rows={tokenPairs(step.before, step.after)} />
      <p class="live-head">Length of the gradient, by layer</p>
      <Bars label="Length of the gradient of each layer." most={most} bars={step.layers.map((layer) => ({ name: layer.name, value: layer.gradient_norm, tone: "attention", note: number(layer.gradient_norm), text: `${layer.name}\nlength of the gradient ${number(layer.gradient_norm, 4)}\nmoves the weights by ${number(100 * layer.update_ratio)} % of their size` }))} />
      <WithTheProgram commands={[trainCommand(prompt, target, rate)]} />
    </>
  );
}
