// What the engine refuses, in the words of the page. The engine speaks of fields of requests, of recipes and of options of commands,
// which a reader of the page has not written.

const rules: readonly (readonly [RegExp, string])[] = [
  [/^(?:edits|recipe):\d+: "interventions\[\d+\]\.vector\.(plus|minus)": (?:the prompt|the text)/, "Steer, “$1”: the text"],
  [/^(?:edits|recipe):\d+: "interventions\[\d+\]\.vector\.(plus|minus)": /, "Steer, “$1”: "],
  [/^(?:edits|recipe):\d+: "interventions\[\d+\][^"]*": /, "A change cannot be made: "],
  [/^recipe:\d+: "corrupt[^"]*": /, "Second prompt: "],
  [/^(?:edits|recipe):\d+: /, ""],
  [/^--target /, "Should follow: "],
  [/--target\b/g, "“Should follow”"],
  [/--rate\b/g, "“Learning rate”"],
  [/^"prompt" /, "The prompt "],
  [/^"(\w+)" /, "$1 "],
];

export function inWords(message: string): string {
  const said = rules.reduce((text, [from, to]) => text.replace(from, to), message);
  return said.charAt(0).toUpperCase() + said.slice(1);
}
