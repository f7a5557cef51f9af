// What a reader of a live page can try, each in the text at the step that raises its question.

import type { JSX } from "preact";
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
  name: string;
  /** What the reader can find out. */
  question: string;
  Draw: (props: { active: boolean }) => JSX.Element | null;
}

const trials = {
  row: { name: "row", question: "How does one token weigh the others?", Draw: AttentionRow },
  stream: { name: "stream", question: "How does the stream of one token grow?", Draw: Stream },
  units: { name: "units", question: "What does a single unit write?", Draw: Units },
  next: { name: "next", question: "Which token is taken?", Draw: NextTokens },
  off: { name: "off", question: "What happens without a part?", Draw: SwitchOff },
  patch: { name: "patch", question: "Where does the model keep what decides?", Draw: Patch },
  train: { name: "train", question: "What does one step of training change?", Draw: TrainStep },
} as const satisfies Record<string, Trial>;

/** By the id of a step. */
const places: Readonly<Record<string, readonly Trial[]>> = {
  attention: [trials.row],
  residual: [trials.stream],
  mlp: [trials.units],
  output: [trials.next],
  attribution: [trials.off, trials.patch],
  "back-propagation": [trials.train],
};

/** The experiments of a step, on a page that runs the model. */
export function Experiment({ step }: { step: string }) {
  const { engine } = useLive();
  if (engine === null) return null;
  return <><Redraw step={step} />{(places[step] ?? []).map((trial) => <One key={trial.name} trial={trial} />)}</>;
}

/** Asks the engine only while it is near the window: a page has many, and each would ask at every key. */
function One({ trial: { name, question, Draw } }: { trial: Trial }) {
  const [box, active] = useSeen<HTMLElement>("300px");
  return (
    <section class="experiment" ref={box} data-experiment={name} aria-labelledby={`try-${name}`}>
      <h3 id={`try-${name}`}><span>Try it</span> {question}</h3>
      <Draw active={active} />
    </section>
  );
}
