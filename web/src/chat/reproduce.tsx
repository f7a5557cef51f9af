// How to get what a view shows without this page: the request for curl, and the command line.

import { useEffect, useState } from "preact/hooks";
import { Copyable, Fold } from "../controls";
import { hasKey } from "../key";
import type { Asked } from "./ask";
import type { Served } from "./server";
import { asTrouble } from "./trouble";

/** A word of a shell's command line. */
export function quoted(text: string): string {
  return /^[\w./:=,@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export function curl({ path, body }: Asked): string {
  const url = new URL(path, document.baseURI).href;
  const key = hasKey() ? ` -H "Authorization: Bearer $VITRINE_API_KEY"` : "";
  return `curl -s ${quoted(url)} -H 'Content-Type: application/json'${key} -d ${quoted(JSON.stringify(body))}`;
}

function modelFlag(served: Served | null): string {
  return served === null || served.path === null ? "" : ` --model ${quoted(served.path)}`;
}

/** `vitrine command --tokens 1,2,3 options`, with the model that the server runs. */
export function commandLine(command: string, ids: readonly number[], options: string, served: Served | null): string {
  return `vitrine ${command} --tokens ${ids.join(",")}${options === "" ? "" : ` ${options}`}${modelFlag(served)}`;
}

/** The same with a text in the place of ids. */
export function commandOfText(command: string, text: string, options: string, served: Served | null): string {
  return `vitrine ${command} ${options}${modelFlag(served)} ${text.startsWith("-") ? "-- " : ""}${quoted(text)}`;
}

/** A command line that reads the recipe from a file, which the same lines write. */
export function withRecipe(recipe: string, command: string): string {
  return `cat > recipe.yaml <<'END'\n${recipe.trimEnd()}\nEND\n${command}`;
}

/** `vitrine intervene` with a recipe. */
export function intervene(ids: readonly number[], edits: readonly unknown[], served: Served | null): string {
  const recipe = [
    `prompt: {tokens: [${ids.join(", ")}]}`,
    "interventions:",
    // Every line of JSON is YAML.
    ...edits.map((edit) => `  - ${JSON.stringify(edit)}`),
  ].join("\n");
  return withRecipe(recipe, `vitrine intervene recipe.yaml${modelFlag(served)}`);
}

interface Props {
  /** "attention": what is reproduced. */
  what: string;
  request: Asked;
  /** The command line, or how to find it. */
  command: string | (() => Promise<string>);
}

/** Folded: the reader opens it where it is wanted. */
export function Reproduce(props: Props) {
  return <Fold summary="Reproduce this" class="again">{() => <Commands {...props} />}</Fold>;
}

export function Commands({ what, request, command }: Props) {
  return (
    <>
      <Copyable label={`curl for ${what}`} text={curl(request)} />
      {typeof command === "string" && <Copyable label={`command line for ${what}`} text={command} />}
      {typeof command === "function" && <Found what={what} command={command} />}
    </>
  );
}

function Found({ what, command }: { what: string; command: () => Promise<string> }) {
  const [text, set] = useState<string | null>(null);
  const [problem, fail] = useState("");
  useEffect(() => {
    command().then(set, (error: unknown) => fail(asTrouble(error)?.message ?? ""));
  }, []);
  if (text !== null) return <Copyable label={`command line for ${what}`} text={text} />;
  return <p class="remark" role="status">{problem === "" ? "Asking for the token ids …" : `The command line needs the token ids: ${problem}`}</p>;
}
