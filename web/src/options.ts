// The options of a command that change its numbers.
import type { Vitrine } from "./data";

/** Puts options such as "--compute f32" into the command lines of a document that lacks them. */
export function withOptions(document: Vitrine, options: string): Vitrine {
  if (options === "" || document.prompt.shell.startsWith(options)) return document;
  return { ...document, prompt: { ...document.prompt, shell: `${options} ${document.prompt.shell}` } };
}
