// What a reader does, and what is computed then: at every key the next token, after a pause the pictures of the page.

import type { Vitrine } from "../data";
import { mention, replaceDocument, vitrine } from "../document";
import { withOptions } from "../options";
import type { Engine } from "./engine";
import { keepSteps } from "./keep";
import { edits, promptField, samplingFields, set, state, type Next, type Sampling, type State } from "./state";
import { written } from "./written";

const shownTokens = 64;
const pause = 500;
/** The pictures of the run that the engine draws of a changed model, too. */
const editedPictures = ["next-tokens", "attention"] as const;

/** A document with every step that the page can have. */
let fullest: Vitrine = vitrine;
let drawAgain: () => void = () => undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** `draw` draws the page again from the document. */
export function onDocument(draw: () => void): void {
  drawAgain = draw;
}

function told(error: unknown): void {
  set({ trouble: error instanceof Error ? error.message : String(error) });
}

/** The most likely next tokens of the state, of the model as it is and of the changed one. */
async function predict(): Promise<void> {
  const { engine, prompt, sampling } = state();
  if (engine === null) return;
  try {
    const body = { ...promptField(prompt), ...samplingFields(sampling), top: shownTokens };
    const changes = edits(state());
    const [plain, changed] = await Promise.all([
      engine.ask<Next>("next", body, "plain"),
      changes.length === 0 ? null : engine.ask<Next>("next", { ...body, edits: changes }, "changed"),
    ]);
    if (plain !== null) set({ plain, trouble: "", ...(changes.length === 0 ? { changed: null, edited: null } : {}) });
    if (changed !== null) set({ changed });
  } catch (error) {
    told(error);
  }
}

/** The pictures that can be drawn of the changed model. */
async function drawEdited(): Promise<void> {
  const { engine, prompt } = state();
  const changes = edits(state());
  const names = editedPictures.filter((name) => vitrine.pictures[name]?.available === true);
  if (engine === null || changes.length === 0 || names.length === 0) return;
  const of = JSON.stringify(changes);
  try {
    const document = await engine.ask<Vitrine & { ignored_fields?: string[] }>("document", { ...promptField(prompt), pictures: names, edits: changes }, "edited");
    if (document === null || prompt !== state().prompt || engine !== state().engine || of !== JSON.stringify(edits(state()))) return;
    if (document.ignored_fields?.includes("edits") === true) return;  // it shows the model as it is
    mention(document.pieces);
    set({ edited: document });
  } catch {
    set({ edited: null });  // the prediction has told what is wrong
  }
}

/** The changed model alone: what an edit needs. */
async function predictChanged(): Promise<void> {
  const { engine, prompt, sampling } = state();
  const changes = edits(state());
  if (engine === null || changes.length === 0) return set({ changed: null, edited: null, trouble: "" });
  void drawEdited();
  try {
    const changed = await engine.ask<Next>("next", { ...promptField(prompt), ...samplingFields(sampling), top: shownTokens, edits: changes }, "changed");
    if (changed !== null) set({ changed, trouble: "" });
  } catch (error) {
    told(error);
  }
}

/** Shows the pictures of the document that `made` gives, unless the prompt has changed by then. `whole`: nothing was left out of it. */
async function drawFrom(whole: boolean, made: (engine: Engine, body: object) => Promise<Vitrine | null>): Promise<void> {
  const { engine, prompt } = state();
  if (engine === null) return;
  set({ drawing: true });
  try {
    const document = await made(engine, promptField(prompt));
    // Another prompt, or the reader's own model, may have come in between.
    if (document === null || prompt !== state().prompt || engine !== state().engine) return;
    const now = withOptions(document, engine.commandOptions);
    // A prompt of one token has no step of gradients; the next one has it again.
    if (whole && now.steps.length >= fullest.steps.length) fullest = now;
    const { kept, old } = whole ? { kept: now, old: new Set<string>() } : keepSteps(fullest, now);
    replaceDocument(kept);
    set({ drawing: false, old, edited: null });
    drawAgain();
    void drawEdited();
  } catch (error) {
    if (engine !== state().engine) return;
    set({ drawing: false });
    told(error);
  }
}

/** Which document the page is made of. */
const chapter = () => (vitrine.chapter === undefined ? {} : { chapter: vitrine.chapter.name });

const draw = () => drawFrom(false, (engine, body) => engine.ask<Vitrine>("document", { ...body, ...chapter(), gradients: false }, "document"));

/** The pictures with those that need the model run backward, in a thread of its own: they take long, and much memory. */
export const drawGradients = () => drawFrom(true, (engine, body) => engine.askApart<Vitrine>("document", { ...body, ...chapter(), gradients: true }));

export function setPrompt(prompt: string): void {
  const { where, off, units } = state();
  // Positions mean other tokens in another prompt.
  const kept = new Set([...off].filter((name) => !name.startsWith("position ")));
  set({ prompt, drawing: true, ...(where === null ? {} : { where: null }), ...(kept.size === off.size ? {} : { off: kept }), ...(units.size === 0 ? {} : { units: new Map() }) });
  void predict();
  clearTimeout(timer);
  timer = setTimeout(() => void draw(), pause);
}

export function setSampling(part: Partial<Sampling>): void {
  set({ sampling: { ...state().sampling, ...part } });
  void predict();
}

export function change(part: Partial<Pick<State, "off" | "where" | "steering" | "units">>): void {
  set(part);
  void predictChanged();
}

/** The model as it is. */
export function allOn(): void {
  change({ off: new Set(), where: null, steering: null, units: new Map() });
}

export function toggle(name: string): void {
  const off = new Set(state().off);
  if (!off.delete(name)) off.add(name);
  change({ off });
}

/** Appends a token to the prompt and goes on. */
export function append(token: number, piece: string | null): void {
  const { prompt } = state();
  if (piece === null) return setPrompt(prompt.trim() === "" ? String(token) : `${prompt}, ${token}`);
  const text = written(piece);
  if (text !== null) setPrompt(prompt + text);
}

/** Goes on for some tokens as the sampling settings say; the text becomes part of the prompt. */
export async function goOn(tokens: number): Promise<void> {
  const { engine, prompt, sampling } = state();
  if (engine === null) return;
  try {
    const fields = promptField(prompt);
    const changes = edits(state());
    const made = await engine.ask<{ text: string; tokens: number[] }>("generate", { ...fields, ...samplingFields(sampling), seed: sampling.seed, max_tokens: tokens, ...(changes.length > 0 ? { edits: changes } : {}) });
    if (made === null || prompt !== state().prompt || engine !== state().engine) return;
    setPrompt(typeof fields.prompt === "string" ? prompt + made.text : [...fields.prompt, ...made.tokens].join(", "));
  } catch (error) {
    told(error);
  }
}

/** Puts the reader's own model in the place of the page's, once the page is drawn with it. Throws what is wrong with it. */
export async function openModel(file: File): Promise<void> {
  const { engine: before, prompt } = state();
  if (before === null || before.other === null) return;
  const engine = await before.other(file);
  try {
    const document = await engine.ask<Vitrine>("document", { ...promptField(prompt), ...chapter(), gradients: false });
    if (document === null) throw new Error("the model gave no answer");
    putModel(engine, withOptions(document, engine.commandOptions));
  } catch (error) {
    engine.end();
    throw error;
  }
  before.end();
  if (prompt === state().prompt) void predict();
  else setPrompt(state().prompt);
}

/** Draws the page with another model and its document; where that cannot be drawn, all is as before, and the error goes on. */
function putModel(engine: Engine, document: Vitrine): void {
  const [was, shown, whole] = [state(), vitrine, fullest];
  const { kept, old } = keepSteps(fullest, document);
  clearTimeout(timer);
  try {
    fullest = kept;
    replaceDocument(kept);
    engine.onBusy((busy) => set({ busy }));
    set({ engine, plain: null, changed: null, edited: null, off: new Set(), where: null, steering: null, units: new Map(), old, trouble: "", busy: false, drawing: false });
    drawAgain();
  } catch (error) {
    fullest = whole;
    replaceDocument(shown);
    engine.onBusy(() => undefined);
    set(was);
    try {
      drawAgain();
    } catch {
      // What is half drawn cannot always be drawn over; the first error says why.
    }
    throw error;
  }
}

/** The first answer, to the prompt that the page was made with. */
export function begin(): void {
  void predict();
}
