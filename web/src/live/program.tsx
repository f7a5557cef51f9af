// The commands and recipes that stand beside what a live page shows.

import { Copyable, Fold } from "../controls";

/** How to get the numbers in sight with the program. */
export function WithTheProgram({ commands, recipe }: { commands: readonly string[]; recipe?: string }) {
  return (
    <Fold summary="The same with the program" class="live-command">
      {() => (
        <>
          {recipe !== undefined && <><p>Save this as <code>recipe.yaml</code>:</p><Copyable label="recipe" text={recipe} /></>}
          {commands.map((command) => <Copyable key={command} label="command" text={command} />)}
        </>
      )}
    </Fold>
  );
}
