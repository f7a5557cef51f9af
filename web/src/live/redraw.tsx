// What stands in a step until the model has been run backward for the prompt that is there now. It is done once the step is in sight.

import { useEffect, useState } from "preact/hooks";
import { vitrine } from "../document";
import { drawGradients } from "./actions";
import { useSeen } from "./seen";
import { useLive } from "./state";

export function Redraw({ step }: { step: string }) {
  return useLive((now) => now.old.has(step)) ? <Waiting /> : null;
}

function Waiting() {
  const drawing = useLive((now) => now.drawing);
  const prompt = useLive((now) => now.prompt);
  const [box, seen] = useSeen<HTMLDivElement>("0px");
  const [tried, trying] = useState<string | null>(null);
  const draw = () => {
    if (!drawGradients()) return;
    trying(prompt);
  };
  useEffect(() => {
    if (seen && !drawing && tried !== prompt) draw();
  }, [seen, drawing, prompt]);
  const failed = tried === prompt && !drawing;
  return (
    <div class="redraw" ref={box}>
      <p role="status">{failed ? "This step could not be drawn for the new prompt." : "The prompt or the model has changed. This step runs the model backward, which takes some seconds, and is drawn again while it is in sight …"}</p>
      {failed && <button type="button" onClick={draw}>Try again</button>}
    </div>
  );
}

/** On a page whose first document was made without gradients, as a server's is: the steps that run the model backward, on request. */
export function Backward() {
  const engine = useLive((now) => now.engine);
  const drawing = useLive((now) => now.drawing);
  if (engine === null || vitrine.tokens.length < 2 || vitrine.pictures["gradient-norms"]?.available !== false) return null;
  return <p class="redraw"><button type="button" disabled={drawing} onClick={drawGradients}>{drawing ? "Drawing …" : "Draw the steps that run the model backward"}</button></p>;
}
