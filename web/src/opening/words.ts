// The prose of the opening, in one place.

import type { Model } from "../data";
import { vitrine } from "../document";
import { amount, count, plural } from "../format";

export const words = {
  /** What a transformer is, for a reader who has never met one. */
  first: "A transformer is a neural network, a long calculation whose numbers were found by training. It reads a text in pieces and works out what is likely to come next. Here one is at work on this text.",
  told: (model: string) => `The numbers are those of ${model}, at work on the text below.`,
  how: "Each line is one piece of the text, a token. It runs through the layers from left to right. In every layer it collects information from the tokens before it (the arcs) and works on what it has. The thicker the line, the more has been added up on it. The word on a line is what the model would say next if it ended there.",
  numbers: (m: Model) => `All of it is arithmetic: ${plural(m.nLayers, "layer")} of multiplications and additions, one after the other, with ${amount(m.parameters)} numbers that training sets, the parameters. The answer is a probability for each of the ${count(m.vocabSize)} pieces of text that the model knows.`,
  alt: (m: Model, rows: number) => `The model at work: ${plural(rows, "token")}, one below the other, run through ${plural(m.nLayers, "layer")} from left to right.`,
  legend: {
    line: "a token; thickness: length of its residual stream, the numbers that the layers add to",
    word: "most likely next token, if the model ended there (logit lens)",
    arc: "attention, from the token looked at to the one that looks",
    mean: "mean of a layer's heads",
  },
  /** What the model is, in a sentence: its own size first, then whose architecture it has. */
  summary: (m: Model) => {
    const keys = { MHA: "", GQA: `, which share ${plural(m.nKvHeads, "key and value head")}`, MQA: ", which share one key and value head" }[m.heads];
    const family = /^[a-z]/.test(m.familyTitle) ? `the ${m.familyTitle}` : m.familyTitle;
    const experts = vitrine.pictures.experts;
    const mlp = experts?.available === true ? `${plural(experts.count, "MLP")}, of which each token takes ${experts.perToken}` : `an MLP (${m.mlpTitle}; a multilayer perceptron, the part that works on each token by itself) of ${count(m.dFf)} hidden units`;
    return `Its architecture is that of ${family}: every token is a vector of ${count(m.dModel)} numbers; each layer has ${plural(m.nHeads, "attention head")}${keys}, and ${mlp}.`;
  },
  hint: "Every picture says where its numbers come from. Point at one, touch it, or move to it with the Tab key and walk through it with the arrow keys, to read its values.",
} as const;
