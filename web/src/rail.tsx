// Where the reader is: at the side where there is room, else a bar at the top that unfolds. The map, the answer and the
// numbered steps stay in sight in both.

import { useRef } from "preact/hooks";
import type { Step } from "./data";
import { AnswerLine, SmallMap } from "./map";
import { useReading } from "./reading";

export function Rail({ steps }: { steps: readonly Step[] }) {
  const reading = useReading(["top", ...steps.map((step) => step.id)]);
  const bar = useRef<HTMLDetailsElement>(null);
  if (steps.length < 2) return null;
  const at = steps.findIndex((step) => step.id === reading);
  const here = at < 0 ? null : steps[at]!.id;
  const list = (
    <ol>
      {steps.map((step, i) => (
        <li key={step.id}>
          <a href={`#${step.id}`} {...(i === at ? { "aria-current": "location" as const } : {})}><span>{i + 1}</span> {step.title}</a>
        </li>
      ))}
    </ol>
  );
  return (
    <>
      <nav class="rail" aria-label="Steps">
        <p class="rail-answer"><AnswerLine /></p>
        <a class="rail-map" href="#map" aria-label="To the map" tabIndex={-1}><SmallMap step={here} width={170} room={96} /></a>
        {list}
      </nav>
      <details
        ref={bar}
        class="bar-top"
        onClick={(event) => {
          if ((event.target as Element).closest("a") !== null && bar.current !== null) bar.current.open = false;
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || bar.current?.open !== true) return;
          bar.current.open = false;
          bar.current.querySelector("summary")?.focus();
        }}
      >
        <summary><span class="bar-place">{at < 0 ? `${steps.length} steps` : <>{at + 1} <small>of {steps.length}</small> {steps[at]!.title}</>}</span> <AnswerLine /></summary>
        <nav aria-label="Steps, folded">{list}</nav>
      </details>
    </>
  );
}
