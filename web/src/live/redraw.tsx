// What stands in a step until the model has been run backward for the prompt that is there now. It is done once the step is in sight.

import { useEffect, useState } from "preact/hooks";
import { drawGradients } from "./actions";
import { useSeen } from "./seen";
import { useLive } from "./state";

export function Redraw({ step }: { step: string }) {
  return useLive().old.has(step) ? <Waiting /> : null;
}

function Waiting() {
  const { drawing, prompt } = useLive();
  const [box, seen] = useSeen<HTMLDivElement>("0px");
  const [tried, trying] = useState<string | null>(null);
  const draw = () => {
    trying(prompt);
    void drawGradients();
  };
  useEffect(() => {
    if (seen && !drawing && tried !== prompt) draw();
  }, [seen, drawing, prompt]);
  const failed = tried === prompt && !drawing;
  return (
    <div class="redraw" ref={box}>
      <p role="status">{failed ? "This step could not be drawn for the new prompt." : "The prompt has changed. This step runs the model backward, which takes some seconds, and is drawn again while it is in sight …"}</p>
      {failed && <button type="button" onClick={draw}>Try again</button>}
    </div>
  );
}
