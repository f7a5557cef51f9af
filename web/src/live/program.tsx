// The commands and recipes that stand beside what a live page shows.

import { Copyable, Fold } from "../controls";
import { saveFile } from "../save";
import { useLive } from "./state";

/** How to get the numbers in sight with the program. */
export function WithTheProgram({ commands, recipe }: { commands: readonly string[]; recipe?: string }) {
  return (
    <Fold summary="The same with the program" class="live-command">
      {() => (
        <>
          {recipe !== undefined && <><p>Save this as <code>recipe.yaml</code>:</p><Copyable label="recipe" text={recipe} /></>}
          {commands.map((command) => <Copyable key={command} label="command" text={command} />)}
          <SaveModel />
        </>
      )}
    </Fold>
  );
}

/** The model's file, where the page holds it. */
function SaveModel() {
  const file = useLive((now) => now.engine?.file ?? null);
  if (file === null) return null;
  const save = async () => saveFile(file.name, await file.bytes());
  return <p><code>{file.name}</code> is the model of this page. <button type="button" onClick={() => void save()}>Save {file.name}</button></p>;
}
