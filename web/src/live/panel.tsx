// The panel of a live page, docked at the bottom of the window: the prompt and what comes next, always in sight, and above them
// what can be done to the model.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Choice, Fold } from "../controls";
import { vitrine } from "../document";
import { percent, plural } from "../format";
import { allOn, drawGradients, setPrompt } from "./actions";
import { NextTokens } from "./next";
import { SwitchOff } from "./off";
import { Patch } from "./patch";
import { AttentionRow } from "./row";
import { byIds, edits, useLive } from "./state";
import { Stream } from "./stream";
import { TokenButton } from "./token";
import { TrainStep } from "./train";

const parts = [
  { value: "next", name: "Next token", draw: NextTokens },
  { value: "off", name: "Switch off", draw: SwitchOff },
  { value: "patch", name: "Patch", draw: Patch },
  { value: "train", name: "Train one step", draw: TrainStep },
  { value: "row", name: "A row of attention", draw: AttentionRow },
  { value: "stream", name: "The stream", draw: Stream },
] as const;
type Part = (typeof parts)[number]["value"];

export function Panel() {
  const now = useLive();
  const [open, unfold] = useState(false);
  const [part, choose] = useState<Part>("next");
  const dock = useRef<HTMLDivElement>(null);
  // What the dock covers can be scrolled into sight.
  useLayoutEffect(() => {
    const measure = () => document.documentElement.style.setProperty("--dock", `${dock.current!.offsetHeight}px`);
    const observer = new ResizeObserver(measure);
    observer.observe(dock.current!);
    return () => observer.disconnect();
  }, []);
  const shown = now.changed ?? now.plain;
  const changes = edits(now).length;
  const Draw = parts.find((one) => one.value === part)!.draw;
  return (
    <section class={open ? "dock open" : "dock"} ref={dock} data-busy={now.busy || now.drawing} aria-label="Change it" onKeyDown={(event) => event.key === "Escape" && unfold(false)}>
      {open && (
        <div class="dock-inside" id="live-inside" tabIndex={-1}>
          <Choice label="Do" options={parts} value={part} onChange={choose} />
          <Draw />
          <Gradients />
          {now.engine?.file !== null && <Fold summary="The model of this page as a file">{() => <SaveModel />}</Fold>}
        </div>
      )}
      {now.trouble !== "" && <p class="dock-trouble" role="alert">{now.trouble}</p>}
      <div class="dock-bar">
        <label class="dock-prompt">
          <span>{byIds() ? "Token ids" : "Prompt"}</span>
          <textarea rows={1} spellcheck={false} autocomplete="off" value={now.prompt} onInput={(event) => setPrompt(event.currentTarget.value)} />
        </label>
        <ol class="dock-next" aria-label="Most likely next tokens; a click appends one">
          {(shown?.next ?? []).slice(0, 5).map((one) => <li key={one.token}><TokenButton of={one} /><b>{percent(Math.exp(one.logprob))}</b></li>)}
        </ol>
        {changes > 0 && <button type="button" class="dock-changes" onClick={allOn}>Undo {plural(changes, "change")}</button>}
        <button type="button" class="dock-more" aria-expanded={open} onClick={() => unfold(!open)}>{open ? "Fold" : "Change it"}</button>
      </div>
    </section>
  );
}

/** New pictures come without gradients, which take long; a reader may ask for them. */
function Gradients() {
  const { drawing } = useLive();
  if (vitrine.pictures["gradient-norms"]?.available === true) return null;
  return <div class="live-row"><button type="button" disabled={drawing} onClick={() => void drawGradients()}>{drawing ? "Drawing …" : "Draw the pictures of gradients, too"}</button></div>;
}

function SaveModel() {
  const { engine } = useLive();
  const name = engine?.file?.name ?? "";
  const save = async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await engine!.file!.bytes());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  return (
    <>
      <p>Every command here names <code>{name}</code>: these weights, which the page holds. With them the program gives the same numbers.</p>
      <button type="button" onClick={() => void save()}>Save {name}</button>
    </>
  );
}
