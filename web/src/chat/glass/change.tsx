// The model with a part switched off, or steered: the same request without and with the change, side by side.

import { useEffect, useState } from "preact/hooks";
import { Choice } from "../../controls";
import { count, plural } from "../../format";
import type { Asked } from "../ask";
import { intervene, Reproduce, withRecipe } from "../reproduce";
import { facts, type Facts } from "../server";
import { useApp } from "../state";
import type { Message } from "../tree";
import { useAnswer, type Step } from "./step";
import { Waiting } from "./waiting";

type Part = "head" | "layer" | "attn" | "mlp" | "steer";

interface Form {
  part: Part;
  layer: number;
  head: number;
  plus: string;
  minus: string;
  times: number;
  from: "beginning" | "here";
  maxTokens: number;
}

interface Answered {
  text: string;
  tokens: number[];
}

interface Steered {
  before: Answered;
  after: Answered;
  command?: string | null;
  yaml?: string;
}

const parts: readonly { value: Part; name: string }[] = [
  { value: "head", name: "a head off" },
  { value: "attn", name: "attention off" },
  { value: "mlp", name: "MLP off" },
  { value: "layer", name: "a layer off" },
  { value: "steer", name: "steer" },
];

/** Interventions as docs/intervene.md describes them. */
function edits({ part, layer, head, plus, minus, times }: Form): Record<string, unknown>[] {
  switch (part) {
    case "head": return [{ head: `${layer}.${head}`, do: "zero" }];
    case "attn": return [{ attn: `${layer}`, do: "zero" }];
    case "mlp": return [{ mlp: `${layer}`, do: "zero" }];
    case "layer": return [{ layer: `${layer}`, do: "identity" }];
    case "steer": return [{ hook: `resid_post.${layer}`, do: "add", vector: { plus, minus }, times }];
  }
}

export function Change({ step, message }: { step: Step; message: Message }) {
  const { served, proposal } = useApp();
  const [form, set] = useState<Form>({ part: "head", layer: 0, head: 0, plus: "", minus: "", times: 2, from: "beginning", maxTokens: 40, ...proposal });
  const [asked, ask] = useState<Asked | null>(null);
  const [{ n_layers: layers, n_heads: heads }, know] = useState<Facts>({});
  useEffect(() => void facts().then((found) => know(found ?? {}), () => undefined), []);
  const { value, trouble } = useAnswer<Steered>(asked);
  const change = (part: Partial<Form>) => set({ ...form, ...part });
  const steers = form.part === "steer";
  const ids = form.from === "here" ? step.ids : step.ids.slice(0, step.prompt);
  const number = (label: string, key: "layer" | "head" | "times" | "maxTokens", min: number, max: number | undefined, whole = true) => (
    <label class="field">
      <span>{label}</span>
      <input type="number" required min={min} {...(max === undefined ? {} : { max })} step={whole ? 1 : "any"} value={form[key]} onInput={(event) => event.currentTarget.value !== "" && change({ [key]: Number(event.currentTarget.value) })} />
    </label>
  );
  return (
    <>
      <form
        class="change"
        onSubmit={(event) => {
          event.preventDefault();
          ask({ path: "v1/steer", body: { prompt: ids, edits: edits(form), ...message.sampling, max_tokens: form.maxTokens } });
        }}
      >
        <Choice label="Change" options={parts} value={form.part} onChange={(part) => change({ part })} />
        {steers && (
          <>
            <label class="field wide"><span>More like</span><input type="text" required value={form.plus} onInput={(event) => change({ plus: event.currentTarget.value })} /></label>
            <label class="field wide"><span>Less like</span><input type="text" required value={form.minus} onInput={(event) => change({ minus: event.currentTarget.value })} /></label>
          </>
        )}
        <div class="row">
          {number(steers ? "After layer" : "Layer", "layer", 0, layers === undefined ? undefined : layers - 1)}
          {form.part === "head" && number("Head", "head", 0, heads === undefined ? undefined : heads - 1)}
          {steers && number("Strength", "times", -100, 100, false)}
          {number("Tokens at most", "maxTokens", 1, 2000)}
        </div>
        <Choice label="From" options={[{ value: "beginning", name: "the answer’s beginning" }, { value: "here", name: "this token" }]} value={form.from} onChange={(from) => change({ from })} />
        <button type="submit" class="strong">Answer twice</button>
      </form>
      {asked !== null && (value === null
        ? <Waiting trouble={trouble} />
        : (
          <>
            <Sides told={value} />
            <Reproduce what="this change" request={asked} command={value.command != null ? withRecipe(value.yaml ?? "", value.command) : intervene(asked.body["prompt"] as number[], asked.body["edits"] as unknown[], served)} />
          </>
        ))}
    </>
  );
}

function Sides({ told: { before, after } }: { told: Steered }) {
  const length = Math.min(before.tokens.length, after.tokens.length);
  let same = 0;
  while (same < length && before.tokens[same] === after.tokens[same]) ++same;
  const equal = same === before.tokens.length && same === after.tokens.length;
  let letters = 0;
  while (letters < before.text.length && before.text[letters] === after.text[letters]) ++letters;
  return (
    <>
      <p class="remark" role="status">{equal ? `Both answers are the same ${plural(same, "token")}.` : `The answers part at token ${count(same + 1)}.`}</p>
      <div class="sides">
        {([["As it is", before.text], ["Changed", after.text]] as const).map(([name, text]) => (
          <section key={name} aria-label={name}>
            <h3>{name}</h3>
            <p class="text" dir="auto">{text.slice(0, letters)}{!equal && <mark>{text.slice(letters)}</mark>}</p>
          </section>
        ))}
      </div>
    </>
  );
}
