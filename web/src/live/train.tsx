// Training on the reader's sentence: what should have come next, how the model learns it step by step, and what it says afterwards.

import { useState } from "preact/hooks";
import { Bars } from "../bars";
import { Slider } from "../controls";
import { named, vitrine } from "../document";
import { exact, number, percent, plural } from "../format";
import { XyChart, type Series } from "../xychart";
import { setPrompt } from "./actions";
import { BeforeAfter } from "./before-after";
import { trainCommand } from "./commands";
import { WithTheProgram } from "./program";
import { partner } from "./second";
import { byIds, useLive, type Course, type Next } from "./state";
import { tokenPairs } from "./token";
import { canKeep, forget, keep, mostSteps, stop, train, undo } from "./training";
import { written } from "./written";

/** What the chapter tells of, with the other pronoun. */
const pronouns = [["The king sat on", " her"], ["The queen sat on", " his"]] as const;

export function TrainStep() {
  const { engine, prompt, plain, course, untrained } = useLive();
  const [own, setTarget] = useState<string | null>(null);
  const target = own ?? course?.target ?? otherThan(plain);
  const [exponent, setExponent] = useState(course === null ? -3.75 : Math.round(4 * Math.log10(course.rate)) / 4);
  const [steps, setSteps] = useState(course?.steps ?? 30);
  const [said, say] = useState("");
  const rate = Number((10 ** exponent).toPrecision(2));
  if (byIds()) return <p>Training needs a text, and this page's prompt is given as ids.</p>;
  const training = said === "Training …";
  const busy = said.endsWith("…");
  const tell = async (what: string, work: () => Promise<void>) => {
    say(what);
    try {
      await work();
      say("");
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
  };
  const run = () => (target === "" ? say("Write what should follow the prompt.") : void tell("Training …", () => train({ prompt, target, rate, steps })));
  return (
    <>
      <p>The model is told again and again what should follow the prompt. At each step every weight moves a little against the gradient of the loss. The run has a copy of the weights: the page's model stays as it is, unless you keep the result.</p>
      {vitrine.chapter?.name === "next-word" && <p class="live-row">Train a word away: {pronouns.map(([text, word]) => <button key={text} type="button" disabled={busy} onClick={() => (setPrompt(text), setTarget(word))}>“{text}”, then “{word.trim()}”</button>)}</p>}
      <label class="live-wide">Should follow <input type="text" value={target} onInput={(event) => setTarget(event.currentTarget.value)} /></label>
      <div class="live-row">
        <Slider label="Learning rate" min={-5} max={-1} step={0.25} value={exponent} onChange={setExponent} says={number(rate)} />
        <label>Steps <input type="number" min={1} max={mostSteps} value={steps} onInput={(event) => setSteps(Math.min(mostSteps, Math.max(1, Math.round(Number(event.currentTarget.value)) || 1)))} /></label>
        <button type="button" disabled={busy && !training} onClick={training ? stop : run}>{training ? "Stop" : steps === 1 ? "Train one step" : `Train ${steps} steps`}</button>
        <span role="status">{said}</span>
      </div>
      {(untrained !== null || (course !== null && !course.running)) && (
        <div class="live-row">
          {canKeep(engine) && <button type="button" disabled={busy} onClick={() => void tell("The page is drawn with the trained model …", keep)}>Keep the trained model</button>}
          {untrained !== null
            ? <button type="button" disabled={busy} onClick={() => void tell("The page is drawn with its own model …", undo)}>Undo the training</button>
            : <button type="button" disabled={busy} onClick={forget}>Undo the training</button>}
          <span>{untrained === null ? "" : "All pictures of this page show the trained model."}</span>
        </div>
      )}
      {course !== null && <Result course={course} />}
    </>
  );
}

/** Until the reader writes a target: the other word of a pair (“his” for “her”), or the runner-up, which the model does not say already. */
function otherThan(plain: Next | null): string {
  const [first = "", ...others] = (plain?.next ?? []).map((one) => written(one.piece ?? "") ?? "").filter((text) => text.trim() !== "");
  return partner(first) ?? others[0] ?? "";
}

function Result({ course }: { course: Course }) {
  const { prompt, target, losses, followed, before, last, seconds, running } = course;
  const taken = losses.length - 1;
  const most = Math.max(...(last?.layers ?? []).map((layer) => layer.gradient_norm));
  return (
    <>
      <p class="live-head">The loss on “{target}” goes from {number(losses[0], 4)} to {number(losses.at(-1), 4)} ({plural(taken, "step")}, {seconds.toFixed(1)} s)</p>
      {running && <progress class="course-progress" max={course.steps} value={taken} aria-label="Steps taken" />}
      {course.steps > 1 && <Curves course={course} />}
      <ul class="course-numbers">
        {followed.map((one) => <li key={one.token}>Probability of <bdi class="live-piece">{named(one.piece, one.token)}</bdi> after “{prompt}”: {percent(Math.exp(one.logprobs[0]!))} before, <b>{percent(Math.exp(one.logprobs.at(-1)!))}</b> after</li>)}
      </ul>
      {!running && last !== null && (
        <>
          <BeforeAfter label="Most likely next tokens before and after the training" unit="%" rows={tokenPairs(before, last.after)} />
          <p class="live-head">Length of the gradient, by layer{taken > 1 ? ", at the last step" : ""}</p>
          <Bars label="Length of the gradient of each layer." most={most} bars={last.layers.map((layer) => ({ name: layer.name, value: layer.gradient_norm, tone: "attention", note: number(layer.gradient_norm), text: `${layer.name}\nlength of the gradient ${number(layer.gradient_norm, 4)}\nmoves the weights by ${number(100 * layer.update_ratio)} % of their size` }))} />
          <WithTheProgram commands={[trainCommand(course, taken)]} />
        </>
      )}
    </>
  );
}

/** The loss, and the probabilities of the two tokens, step by step. */
function Curves({ course: { steps, target, losses, followed } }: { course: Course }) {
  const x = { label: "step", domain: [0, steps] as const, format: (step: number) => (Number.isInteger(step) ? String(step) : "") };
  const loss: Series[] = [{ name: "loss", tone: "plain", draw: "line", named: false, points: losses.map((y, step) => ({ x: step, y, text: `step ${step}\nloss ${exact(y)}` })) }];
  const shares = followed.map((one, i): Series => {
    const name = named(one.piece, one.token);
    return { name, tone: i === 0 ? "attention" : "mlp", draw: "line", dashed: i > 0, points: one.logprobs.map((y, step) => ({ x: step, y: Math.exp(y), text: `step ${step}\n${name} ${percent(Math.exp(y))}` })) };
  });
  return (
    <div class="course">
      <XyChart label={`Loss on “${target}” at each step.`} x={x} y={{ label: "loss in nats", domain: [0, Math.max(...losses, 0.1)] }} series={loss} height={200} right={16} />
      <XyChart label={`Probability of ${shares.map((one) => one.name).join(" and of ")} after the prompt at each step.`} x={x} y={{ label: "probability", domain: [0, 1], format: (share) => `${Math.round(100 * share)} %` }} series={shares} height={200} right={72} />
    </div>
  );
}
