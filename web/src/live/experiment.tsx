// What a reader of a live page can try, each at the step whose text names it.

import type { JSX } from "preact";
import type { ExperimentName, Step } from "../data";
import { NextTokens } from "./next";
import { SwitchOff } from "./off";
import { Patch } from "./patch";
import { Redraw } from "./redraw";
import { AttentionRow } from "./row";
import { useSeen } from "./seen";
import { useLive } from "./state";
import { Stream } from "./stream";
import { TrainStep } from "./train";
import { Units } from "./units";

interface Trial {
  /** What the reader can find out. */
  question: string;
  Draw: (props: { active: boolean }) => JSX.Element | null;
}

const trials: Record<ExperimentName, Trial> = {
  row: { question: "How does one token weigh the others?", Draw: AttentionRow },
  stream: { question: "How does the stream of one token grow?", Draw: Stream },
  units: { question: "What does a single unit write?", Draw: Units },
  next: { question: "Which token is taken?", Draw: NextTokens },
  off: { question: "What happens without a part?", Draw: SwitchOff },
  patch: { question: "Where does the model keep what decides?", Draw: Patch },
  train: { question: "What does training change, step by step?", Draw: TrainStep },
};

/** The experiments of a step, on a page that runs the model. */
export function Experiments({ step }: { step: Step }) {
  const live = useLive((now) => now.engine !== null);
  const models = useLive((now) => now.models);
  if (!live) return null;
  return <><Redraw step={step.id} />{step.experiments.map((name) => <One key={`${models} ${name}`} name={name} />)}</>;
}

/** Asks the engine only while it is near the window: a page has many, and each would ask at every key. */
function One({ name }: { name: ExperimentName }) {
  const { question, Draw } = trials[name];
  const [box, active] = useSeen<HTMLElement>("300px");
  return (
    <section class="experiment" ref={box} data-experiment={name} aria-labelledby={`try-${name}`}>
      <h3 id={`try-${name}`}><span>Try it</span> {question}</h3>
      <Draw active={active} />
    </section>
  );
}
