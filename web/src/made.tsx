// Where the numbers of a picture come from: said beside its title, and beside the titles of its parts where they differ.

export type Made = "run" | "model" | "toy" | "log" | "merge";

const words: Record<Made, { name: string; says: string }> = {
  run: { name: "this run", says: "computed by this model for this text" },
  model: { name: "this model", says: "its shape and weights, whatever the text" },
  merge: { name: "this merge", says: "measured while the result was computed" },
  log: { name: "training runs", says: "logged while models of ours were trained" },
  toy: { name: "toy", says: "small numbers, chosen to show a principle" },
};

export function MadeOf({ of }: { of: Made }) {
  return <span class={`made ${of}`} title={words[of].says}>{words[of].name}</span>;
}

/** What the marks mean. */
export function MadeLegend({ of: shown = ["run", "model", "toy"] }: { of?: readonly Made[] }) {
  return (
    <ul class="made-legend" aria-label="Where numbers come from">
      {shown.map((of) => <li key={of}><MadeOf of={of} /> {words[of].says}</li>)}
    </ul>
  );
}
