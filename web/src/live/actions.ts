// What a reader does, and what is computed then: at every key the next token, then the pictures in sight, then the whole page.

import type { PictureName, Vitrine } from "../data";
import { mention, replaceDocument, vitrine } from "../document";
import { withOptions } from "../options";
import type { Engine } from "./engine";
import { keepSteps } from "./keep";
import { edits, promptField, samplingFields, set, state, type Next, type Sampling, type State } from "./state";
import { written } from "./written";

const shownTokens = 64;
/** Milliseconds without a key. */
const pause = 40;
/** Pixels above and below the window. */
const nearWindow = 200;
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
  try {
    const asked = engine.ask<Next>("next", { ...promptField(prompt), ...samplingFields(sampling), top: shownTokens, edits: changes }, "changed");
    void drawEdited();
    const changed = await asked;
    if (changed !== null) set({ changed, trouble: "" });
  } catch (error) {
    told(error);
  }
}

/** Which document the page is made of. */
const chapter = () => (vitrine.chapter === undefined ? {} : { chapter: vitrine.chapter.name });

/** Another prompt, or the reader's own model, may have come while the engine worked. */
function stands({ engine, prompt }: State): boolean {
  return prompt === state().prompt && engine === state().engine;
}

/** Pictures that are near the window, and those that the top of the page is made of. */
function nearPictures(): PictureName[] {
  const names = new Set<PictureName>(["next-tokens", "attention"]);
  const near = (element: Element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return bottom > -nearWindow && top < window.innerHeight + nearWindow;
  };
  if (near(document.getElementById("top")!)) names.add("logit-lens");
  for (const figure of document.querySelectorAll<HTMLElement>("figure[data-picture]")) if (near(figure)) names.add(figure.dataset["picture"] as PictureName);
  return [...names].filter((name) => {
    const picture = vitrine.pictures[name];
    return picture?.available === true && picture.made.includes("run");
  });
}

/** The page for the state's prompt: first what a reader sees of it, then all of it. */
async function draw(): Promise<void> {
  const now = state();
  const { engine } = now;
  if (engine === null) return;
  try {
    const fields = promptField(now.prompt);
    const names = nearPictures();
    const answer = names.length === 0 ? vitrine : await engine.ask<Vitrine>("document", { ...fields, ...chapter(), pictures: names, gradients: false }, "near");
    if (answer === null || !stands(now)) return;
    const pictures = names.length === 0 ? {} : showFirst(withOptions(answer, engine.commandOptions));
    void drawEdited();
    const whole = await inPieces(engine, { ...fields, ...chapter(), gradients: false }, now);
    if (whole !== null && stands(now)) show(engine, { ...whole, pictures: { ...whole.pictures, ...pictures } }, false);
  } catch (error) {
    if (!stands(now)) return;
    set({ drawing: false });
    told(error);
  }
}

/** Draws the page with some pictures of another prompt, which it returns; the text and the other pictures follow. */
function showFirst({ prompt, tokens, pieces, pictures: made }: Vitrine): Vitrine["pictures"] {
  // Those that run the model backward are drawn by themselves.
  const pictures = Object.fromEntries(Object.entries(made).filter(([, picture]) => picture?.available === true)) as Vitrine["pictures"];
  replaceDocument({ ...vitrine, prompt, tokens, pieces: { ...vitrine.pieces, ...pieces }, pictures: { ...vitrine.pictures, ...pictures } });
  set({ edited: null });
  drawAgain();
  return pictures;
}

/** A document that the engine makes piece by piece, so that it answers others in between. */
async function inPieces(engine: Engine, body: object, now: State): Promise<Vitrine | null> {
  while (stands(now)) {
    const answer = await engine.ask<Vitrine | { unfinished: true }>("document", { ...body, in_pieces: true }, "document");
    if (answer === null || !("unfinished" in answer)) return answer;
  }
  return null;
}

/** Draws the page of a document. `whole`: nothing was left out of it. */
function show(engine: Engine, document: Vitrine, whole: boolean): void {
  // What is the same needs no drawing.
  const pictures = Object.fromEntries(Object.entries(document.pictures).map(([name, picture]) => {
    const shown = vitrine.pictures[name as PictureName];
    return [name, JSON.stringify(shown) === JSON.stringify(picture) ? shown : picture];
  })) as Vitrine["pictures"];
  const now = { ...withOptions(document, engine.commandOptions), pictures };
  // A prompt of one token has no step of gradients; the next one has it again.
  if (whole && now.steps.length >= fullest.steps.length) fullest = now;
  const { kept, old } = whole ? { kept: now, old: new Set<string>() } : keepSteps(fullest, now);
  replaceDocument(kept);
  set({ drawing: false, old });
  drawAgain();
}

let backward = new AbortController();

/**
 * The pictures with those that need the model run backward, in a thread of its own: they take long, and much memory. False: not now,
 * because the page is being drawn already.
 */
export function drawGradients(): boolean {
  const now = state();
  if (now.engine === null || now.drawing) return false;
  set({ drawing: true });
  void runBackward(now.engine, now);
  return true;
}

async function runBackward(engine: Engine, now: State): Promise<void> {
  backward = new AbortController();
  try {
    const document = await engine.askApart<Vitrine>("document", { ...promptField(now.prompt), ...chapter(), gradients: true }, backward.signal);
    if (!stands(now)) return;
    show(engine, document, true);
    void drawEdited();
  } catch (error) {
    if (!stands(now)) return;
    set({ drawing: false });
    told(error);
  }
}

export function setPrompt(prompt: string): void {
  const { where, off, units } = state();
  // Positions mean other tokens in another prompt.
  const kept = new Set([...off].filter((name) => !name.startsWith("position ")));
  set({ prompt, drawing: true, ...(where === null ? {} : { where: null }), ...(kept.size === off.size ? {} : { off: kept }), ...(units.size === 0 ? {} : { units: new Map() }) });
  backward.abort();
  void predict();
  // Behind the answer; while keys follow each other, only the last prompt is drawn.
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
  const { engine: before, untrained } = state();
  if (before === null || before.other === null) return;
  await showModelOf(file, before);
  before.end();
  untrained?.end();
  set({ untrained: null, course: null });
}

/** The same with a file that training has made: the page's model waits for showUntrained(). */
export async function showTrained(file: File): Promise<void> {
  const { engine: before, untrained } = state();
  if (before === null) return;
  await showModelOf(file, before);
  if (untrained === null) return set({ untrained: before });
  before.end();
}

/** The page's model, as it was before training. */
export async function showUntrained(): Promise<void> {
  const { engine: trained, untrained } = state();
  if (trained === null || untrained === null) return;
  await showModel(untrained);
  set({ untrained: null });
  trained.end();
}

async function showModelOf(file: File, before: Engine): Promise<void> {
  if (before.other === null) return;
  const engine = await before.other(file);
  try {
    await showModel(engine);
  } catch (error) {
    engine.end();
    throw error;
  }
}

async function showModel(engine: Engine): Promise<void> {
  const { prompt } = state();
  const document = await engine.ask<Vitrine>("document", { ...promptField(prompt), ...chapter(), gradients: false });
  if (document === null) throw new Error("the model gave no answer");
  putModel(engine, withOptions(document, engine.commandOptions));
  if (prompt === state().prompt) void predict();
  else setPrompt(state().prompt);
}

/** Draws the page with another model and its document; where that cannot be drawn, all is as before, and the error goes on. */
function putModel(engine: Engine, document: Vitrine): void {
  const [was, shown, whole] = [state(), vitrine, fullest];
  const { kept, old } = keepSteps(fullest, document);
  clearTimeout(timer);
  backward.abort();
  try {
    fullest = kept;
    replaceDocument(kept);
    engine.onBusy((busy) => set({ busy }));
    set({ engine, models: was.models + 1, plain: null, changed: null, edited: null, off: new Set(), where: null, steering: null, units: new Map(), old, trouble: "", busy: false, drawing: false });
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
