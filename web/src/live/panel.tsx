// What a live page has at the bottom of the window, always in sight: the prompt, what comes next, and the way back from changes.

import { useLayoutEffect, useRef } from "preact/hooks";
import { space } from "../document";
import { percent, plural, px } from "../format";
import { allOn, setPrompt } from "./actions";
import { BeforeAfterBar } from "./before-after";
import { byIds, edits, set, useLive, type Next } from "./state";
import { TokenButton } from "./token";
import { undo } from "./training";

const shown = 5;

export function Panel() {
  const [prompt, trouble, plain, changed] = [useLive((now) => now.prompt), useLive((now) => now.trouble), useLive((now) => now.plain), useLive((now) => now.changed)];
  const busy = useLive((now) => now.busy || now.drawing);
  const trained = useLive((now) => now.untrained !== null);
  const changes = useLive((now) => edits(now).length) + Number(trained);
  const dock = useRef<HTMLDivElement>(null);
  // What the dock covers can be scrolled into sight.
  useLayoutEffect(() => {
    // Not as a property that all elements inherit: each would be styled anew.
    const measure = () => {
      const high = px(dock.current!.offsetHeight);
      document.documentElement.style.scrollPaddingBottom = `calc(${high} + 1rem)`;
      document.body.style.paddingBottom = high;
    };
    const observer = new ResizeObserver(measure);
    observer.observe(dock.current!);
    return () => observer.disconnect();
  }, []);
  return (
    <section class="dock" ref={dock} data-busy={busy} aria-label="The prompt and what comes next">
      {trouble !== "" && <p class="dock-trouble" role="alert">{trouble}</p>}
      <EndsWithSpace prompt={prompt} />
      <div class="dock-bar">
        <label class="dock-prompt">
          <span>{byIds() ? "Token ids" : "Prompt"}</span>
          <textarea rows={1} spellcheck={false} autocomplete="off" value={prompt} onInput={(event) => setPrompt(event.currentTarget.value)} />
        </label>
        <NextOnes before={changed === null ? null : plain} after={changed ?? plain} />
        {changes > 0 && <button type="button" class="dock-changes" onClick={trained ? () => void undo().catch((error: unknown) => set({ trouble: String(error) })) : allOn}>Undo {plural(changes, "change")}</button>}
      </div>
    </section>
  );
}

function NextOnes({ before, after }: { before: Next | null; after: Next | null }) {
  const was = new Map(before?.next.map((one) => [one.token, Math.exp(one.logprob)]));
  const list = (after?.next ?? []).slice(0, shown).map((one) => ({ ...one, probability: Math.exp(one.logprob), before: was.get(one.token) ?? null }));
  const most = Math.max(...list.map((one) => Math.max(one.probability, one.before ?? 0)));
  return (
    <ol class="dock-next" aria-label="Most likely next tokens; a click appends one">
      {list.map((one) => (
        <li key={one.token} title={one.before === null ? undefined : `before: ${percent(one.before)}`}>
          <TokenButton of={one} />
          <span class="dock-share"><b>{percent(one.probability)}</b><BeforeAfterBar before={one.before} after={one.probability} most={most} /></span>
        </li>
      ))}
    </ol>
  );
}

/** A text that ends with a space is rarely what a reader wants: most tokens bring their space along. */
function EndsWithSpace({ prompt }: { prompt: string }) {
  if (space === null || byIds() || !/\S +$/.test(prompt)) return null;
  return (
    <p class="dock-hint" role="status">
      The prompt ends with a space. Words carry their space in front of them, so the model has seldom seen a text that goes on behind one. <button type="button" onClick={() => setPrompt(prompt.replace(/ +$/, ""))}>Remove the space</button>
    </p>
  );
}
