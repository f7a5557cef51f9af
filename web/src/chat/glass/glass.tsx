// The glass: what went on in the model at the step that chose one token.

import { useLayoutEffect, useRef } from "preact/hooks";
import { Choice, Slider } from "../../controls";
import { percent, piece } from "../../format";
import { ScaleKey } from "../../heat";
import { closeGlass, look } from "../actions";
import { set, useApp, type View } from "../state";
import { probability } from "../tokens";
import type { Conversation, Message } from "../tree";
import { Alternatives } from "./alternatives";
import { Attention } from "./attention";
import { Change } from "./change";
import { Guard } from "./guard";
import { Heads } from "./heads";
import { Lens } from "./lens";
import { useStep } from "./step";
import { Waiting } from "./waiting";

const views: readonly { value: View; name: string }[] = [
  { value: "alternatives", name: "Alternatives" },
  { value: "attention", name: "Attention" },
  { value: "lens", name: "Logit lens" },
  { value: "heads", name: "Heads" },
  { value: "change", name: "Change" },
];

export function Glass({ one, message, token: at }: { one: Conversation; message: Message; token: number }) {
  const { view } = useApp();
  const box = useRef<HTMLElement>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  const from = useRef<Element | null>(null);
  useLayoutEffect(() => {
    const inside = box.current;
    from.current = document.activeElement;
    heading.current?.focus({ preventScroll: true });
    return () => {
      // What opened the glass has the focus again, unless something else took it.
      const at = document.activeElement;
      const lost = at === null || at === document.body || inside?.contains(at) === true;
      if (lost && from.current instanceof HTMLElement && from.current.isConnected) from.current.focus({ preventScroll: true });
    };
  }, []);
  const token = message.tokens[at]!;
  const step = useStep(one, message, at);
  const last = message.tokens.length - 1;
  return (
    <aside class="glass" ref={box} aria-labelledby="glass-title">
      <header>
        <h2 id="glass-title" ref={heading} tabIndex={-1}><bdi class="spelling">{piece(token.text)}</bdi> <small>{at < message.given ? "given" : percent(probability(token.logprob))}</small></h2>
        <button type="button" onClick={closeGlass}>Close</button>
      </header>
      <div class="steps">
        <button type="button" aria-label="The token before" disabled={at === 0} onClick={() => look(message, at - 1)}>‹</button>
        <Slider label="Token" min={0} max={last} value={at} onChange={(to) => look(message, to)} says={`${at + 1} of ${last + 1}`} />
        <button type="button" aria-label="The next token" disabled={at === last} onClick={() => look(message, at + 1)}>›</button>
      </div>
      {message.tokens.length > message.given && <ScaleKey scale="sequential" label="Colors of the answer: the token’s probability" low="0 %" high="100 %" />}
      <Choice label="Show" options={views} value={view} onChange={(chosen) => set({ view: chosen })} />
      <Guard key={view === "change" ? view : `${view} ${at}`}>
        {view === "alternatives" && <Alternatives message={message} at={at} step={step} />}
        {view !== "alternatives" && step.value === null && <Waiting trouble={step.trouble} />}
        {step.value !== null && (
          <>
            {view === "attention" && <Attention step={step.value} />}
            {view === "lens" && <Lens step={step.value} />}
            {view === "heads" && <Heads step={step.value} message={message} at={at} />}
            {view === "change" && <Change key={message.id} step={step.value} message={message} />}
          </>
        )}
      </Guard>
    </aside>
  );
}
