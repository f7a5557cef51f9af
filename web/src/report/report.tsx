// The report of a merge: what was merged and how, what the inputs have in common, layer by layer, and every tensor.

import type { ComponentChildren } from "preact";
import { Copyable } from "../controls";
import { Figure, Prose, type Table } from "../figure";
import { count, exact, number, percent, plural } from "../format";
import { Contents, ThemeButton, type Chapter } from "../frame";
import { MadeLegend } from "../made";
import type { MergeTensor } from "./data";
import { ByLayer, ByTensor, layerRows, tensorRows, type Row } from "./layers";
import { anyInput, inputNames, inputsOf, jointCosine, jointNorm, kept, known, layers, meanShare, merge, norm, outside, pairNames, pairs, pairTitles, parameter, parameterNames, tensorsOf, valueOf } from "./quantities";
import { TensorTable } from "./table";

const based = merge.base !== null;
/** What norms and cosines are of. */
const vectors = based ? "task vectors" : "tensors";
const all = merge.tensors;
const has = (value: (t: MergeTensor) => number) => all.some((t) => known(value(t)));
const measured = merge.inputs.flatMap((_, i) => (has((t) => norm(t, i)) ? [i] : []));
const pruned = merge.inputs.flatMap((_, i) => (has((t) => kept(t, i)) ? [i] : []));
const compared = pairs.flatMap((_, i) => (has((t) => valueOf(t.cosines[i])) ? [i] : []));
const angle = (t: MergeTensor) => (valueOf(t.angle) * 180) / Math.PI;
const degrees = (value: number) => `${number(value, 4)}°`;
const conflict = (t: MergeTensor) => valueOf(t.signConflict);

const normRows: readonly Row[] = [
  ...measured.map((i): Row => ({ name: inputNames[i]!, value: (tensors) => jointNorm(tensors, (t) => norm(t, i)) })),
  { name: "the result", strong: true, value: (tensors: readonly MergeTensor[]) => jointNorm(tensors, (t) => valueOf(based ? t.resultDistance : t.resultNorm)) },
].filter((row) => known(row.value(all)));
const cosineRows: readonly Row[] = compared.map((pair) => ({ name: pairNames[pair]!, title: pairTitles[pair]!, value: (tensors) => jointCosine(tensors, pair) }));
const keptRows: readonly Row[] = pruned.map((i) => ({ name: inputNames[i]!, value: (tensors) => meanShare(tensors, (t) => kept(t, i)) }));

/** The lowest and highest of the layers' values, in words. */
function range(rows: readonly Row[], write: (value: number) => string = (value) => number(value)): string {
  const values = rows.flatMap((row) => layers.map((layer) => ({ row, layer, value: row.value(tensorsOf(layer, "all")) }))).filter(({ value }) => known(value));
  if (values.length === 0) return "No layer has a value.";
  values.sort((a, b) => a.value - b.value);
  const say = ({ row, layer, value }: (typeof values)[number]) => `${write(value)} (${row.title ?? row.name}, layer ${layer})`;
  return `From ${say(values[0]!)} to ${say(values.at(-1)!)}.`;
}
function rangeOfTensors(value: (t: MergeTensor) => number, write: (value: number) => string): string {
  const sorted = all.filter((t) => known(value(t))).sort((a, b) => value(a) - value(b));
  const [low, high] = [sorted[0], sorted.at(-1)];
  return low === undefined || high === undefined ? "No tensor has a value." : `From ${write(value(low))} (${low.name}) to ${write(value(high))} (${high.name}).`;
}

interface Part extends Chapter {
  text: readonly string[];
  /** Nothing: the report has no number of it. */
  figures: readonly { name: string; title: string; caption: string; alt: string; table: () => Table; draw: ComponentChildren }[];
  /** Shown where there are no figures. */
  lacking: string;
}

/** The mean of a parameter over tensors, for one input. */
const meanParameter = (name: string, input: number) => (tensors: readonly MergeTensor[]): number => {
  const values = tensors.map((t) => parameter(t, name, input)).filter(known);
  return values.length === 0 ? NaN : values.reduce((a, b) => a + b, 0) / values.length;
};

function parameterFigure(name: string): Part["figures"][number] {
  const own = inputsOf(name);
  const id = `parameter-${name.replace(/[^A-Za-z0-9]+/g, "-")}`;
  if (own.length > 0) {
    const rows = own.map((i): Row => ({ name: inputNames[i]!, value: meanParameter(name, i) }));
    const negative = all.some((t) => own.some((i) => parameter(t, name, i) < 0));
    return {
      name: id,
      title: `${name} of each input`,
      caption: `${name} of each input by layer: the mean of the layer's tensors.`,
      alt: range(rows),
      table: () => layerRows(rows),
      draw: <ByLayer label={`${name} of each input by layer.`} axis={name} rows={rows} diverging={negative} />,
    };
  }
  const value = (t: MergeTensor) => parameter(t, name, anyInput(name));
  return {
    name: id,
    title: name,
    caption: `${name} of the tensors of each layer. A dot stands for all tensors of one kind that share a value.`,
    alt: rangeOfTensors(value, exact),
    table: () => tensorRows(name, value, all),
    draw: <ByTensor label={`${name} by layer.`} axis={name} value={value} />,
  };
}

function parameterPart(): Part {
  // A parameter that is the same everywhere is said, not drawn.
  const constant = (name: string): number | undefined => {
    const values = new Set(all.flatMap((t) => t.parameters[name] ?? []).filter((v) => v !== null));
    return values.size === 1 ? [...values][0] : undefined;
  };
  const same = parameterNames.filter((name) => constant(name) !== undefined).map((name) => `${name} ${exact(constant(name))}`);
  const drawn = parameterNames.filter((name) => constant(name) === undefined && all.some((t) => (t.parameters[name] ?? []).some((v) => v !== null)));
  return {
    id: "parameters",
    title: "Parameters over the layers",
    text: [
      "A recipe gives each parameter one value, or a list of values that is stretched over the layers (a gradient), or different values for tensors whose names match a filter. Here is what came out.",
      ...(same.length > 0 ? [`The same for every tensor and input: ${same.join(", ")}.`] : []),
    ],
    figures: layers.length === 0 ? [] : drawn.map(parameterFigure),
    lacking: same.length > 0 ? "" : parameterNames.length === 0 ? "This method has no parameters." : "No layer has values that could be drawn; the table below has all.",
  };
}

const disagreement = 1 - 2 ** (1 - Math.max(2, measured.length));
const parts: readonly Part[] = [
  parameterPart(),
  {
    id: "norms",
    title: based ? "How far each input moved" : "How large each input is",
    text: based
      ? [
          `A task vector is what training added to the base: the weights of an input minus those of ${inputNames[merge.base!]!}. Its norm, the root of the sum of its squares, says how far that input moved. Where one input moved much further than the others, it outweighs them in a plain average.`,
          "Beside the inputs stands the result: how far it lies from the base. Far below the inputs, much of what they learned has cancelled or was cut; above them, the method has scaled it up. A norm grows with the number of weights, so compare inputs with each other rather than attention with MLP.",
        ]
      : [
          "The norm of a tensor is the root of the sum of its squares. This merge has no base model, so nothing can be said about how far the inputs moved; these are the sizes of the weights themselves.",
          "Beside the inputs stands the result. Where it is below them, averaging has shortened it: that is what happens to vectors that point in different directions.",
        ],
    figures: normRows.length === 0 || layers.length === 0 ? [] : [{
      name: "norms",
      title: based ? "Norm of the task vectors" : "Norm of the tensors",
      caption: `L2 norm of ${based ? "each input's task vector" : "each input's weights"} and of the result${based ? " minus the base" : ""}, by layer: all tensors of the layer taken as one vector.`,
      alt: range(normRows),
      table: () => layerRows(normRows),
      draw: <ByLayer label={`Norms of the ${vectors} by layer.`} axis="L2 norm" rows={normRows} />,
    }],
    lacking: "The report has no norms.",
  },
  {
    id: "cosines",
    title: "How alike the inputs are",
    text: [
      `The cosine between two ${vectors}: 1 where they point the same way, 0 where they have nothing to do with each other, −1 where they are opposite. It does not depend on their lengths.`,
      based
        ? "Vectors of many numbers that were made independently are nearly at a right angle, so a cosine near 0 is the usual case for inputs that were trained on different things, and no sign of harm. High values mean that the inputs learned the same; averaging then loses little of it. Below 0 they partly undo each other."
        : "Models that were trained from one start are nearly parallel, with cosines close to 1; models that were trained apart are not, and to average them weight by weight seldom makes sense, because the same unit means different things in each.",
    ],
    figures: cosineRows.length === 0 || layers.length === 0 ? [] : [{
      name: "cosines",
      title: `Cosine between ${vectors}`,
      caption: `Cosine of each pair of inputs by layer: all tensors of the layer taken as one vector.`,
      alt: range(cosineRows),
      table: () => layerRows(cosineRows),
      draw: <ByLayer label={`Cosines between the ${vectors} by layer.`} axis="cosine" rows={cosineRows} diverging to={1} />,
    }],
    lacking: merge.inputs.length < 2 ? "One input has no other to be compared with." : "The report has no cosines.",
  },
  {
    id: "signs",
    title: "Where the signs disagree",
    text: [
      based
        ? "The share of weights that some inputs raised and others lowered. There they pull in opposite directions, and a sum or an average cancels."
        : "The share of weights that are positive in some inputs and negative in others. There an average cancels.",
      `Chance alone makes the signs of ${plural(Math.max(2, measured.length), "unrelated vector")} differ at ${percent(disagreement)} of the weights, so that much is no alarm; less means that the inputs agree more than strangers do. Small numbers count like large ones. TIES settles such places by the sign with the larger sum and drops what opposes it; a plain average does not.`,
    ],
    figures: !has(conflict) || layers.length === 0 ? [] : [{
      name: "signs",
      title: "Share of weights with conflicting signs",
      caption: "Share of the elements at which two of the inputs have opposite signs: a dot for the tensors that share a value, lines through the means of each part of a layer.",
      alt: rangeOfTensors(conflict, percent),
      table: () => tensorRows("share with conflicting signs", conflict, all),
      draw: <ByTensor label="Share of conflicting signs by layer." axis="share of elements" value={conflict} write={percent} from={0} to={1} />,
    }],
    lacking: "Signs were not compared in this merge.",
  },
  {
    id: "kept",
    title: "What pruning kept",
    text: [
      "Some methods set most of a task vector to zero before they add it to the others, so that fewer places collide. TIES and breadcrumbs choose by size, DARE by chance; DARE and DELLA scale up what is left, so that its sum stays the same on average.",
      "The share that was kept should be close to the density of the recipe. It counts weights, not what they do: the largest tenth of a task vector usually holds far more than a tenth of its length.",
    ],
    figures: keptRows.length === 0 || layers.length === 0 ? [] : [{
      name: "kept",
      title: "Share of the task vectors that was kept",
      caption: "Share of each input's elements that pruning left in place, by layer.",
      alt: range(keptRows, percent),
      table: () => layerRows(keptRows),
      draw: <ByLayer label="Share that pruning kept, by layer." axis="share kept" rows={keptRows} write={percent} to={1} />,
    }],
    lacking: "Nothing was pruned in this merge.",
  },
  {
    id: "angles",
    title: "The angle between two inputs",
    text: [
      `The angle Ω between the first two ${vectors} says what is at stake between an average and SLERP: the average of two vectors of one length is shorter than they are by the factor cos(Ω/2), SLERP goes along the arc and keeps the length.`,
      "Below about 1.8° the two are the same to all intents, and SLERP takes the straight line.",
      ...(has(angle) ? [largestAngle()] : []),
    ],
    figures: !has(angle) || layers.length === 0 ? [] : [{
      name: "angles",
      title: "Angle in degrees",
      caption: "Angle between the first two inputs at each tensor: a dot for the tensors that share a value, lines through the means of each part of a layer.",
      alt: rangeOfTensors(angle, degrees),
      table: () => tensorRows("angle in degrees", angle, all),
      draw: <ByTensor label="Angle between the first two inputs by layer." axis="degrees" value={angle} write={degrees} from={0} />,
    }],
    lacking: merge.inputs.length < 2 ? "One input has no other to be compared with." : "Angles were not measured in this merge.",
  },
];

function largestAngle(): string {
  const widest = all.filter((t) => known(angle(t))).reduce((a, b) => (angle(b) > angle(a) ? b : a));
  return `The widest here is ${degrees(angle(widest))}, at \`${widest.name}\`: an average of two such vectors of one length keeps ${percent(Math.cos(valueOf(widest.angle) / 2))} of it.`;
}

function Section({ part }: { part: Part }) {
  return (
    <section id={part.id} aria-labelledby={`heading-${part.id}`}>
      <h2 id={`heading-${part.id}`}>{part.title}</h2>
      {(part.figures.length > 0 || part.lacking === "") && part.text.map((text) => <p key={text}><Prose text={text} /></p>)}
      {part.figures.map(({ draw, ...figure }) => <Figure key={figure.name} {...figure} made={["merge"]} wide={false} alone={false}>{draw}</Figure>)}
      {part.figures.length === 0 && part.lacking !== "" && <p class="absent">{part.lacking}</p>}
    </section>
  );
}

function Inputs() {
  const write = (value: number, as: (v: number) => string = (v) => number(v, 4)) => (known(value) ? as(value) : "–");
  const result = jointNorm(all, (t) => valueOf(based ? t.resultDistance : t.resultNorm));
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Inputs of the merge">
      <table>
        <thead><tr><th scope="col">number</th><th scope="col">input</th><th scope="col">{based ? "distance from the base" : "norm"}</th>{pruned.length > 0 && <th scope="col">kept</th>}</tr></thead>
        <tbody>
          {merge.inputs.map((input, i) => (
            <tr key={i}>
              <td class="number">{i}</td>
              <td><bdi>{input}</bdi>{i === merge.base && " (the base)"}</td>
              <td class="number">{write(jointNorm(all, (t) => norm(t, i)))}</td>
              {pruned.length > 0 && <td class="number">{write(meanShare(all, (t) => kept(t, i)), percent)}</td>}
            </tr>
          ))}
          <tr><td /><td>the result</td><td class="number">{write(result)}</td>{pruned.length > 0 && <td class="number">–</td>}</tr>
        </tbody>
      </table>
    </div>
  );
}

export function Report() {
  const elements = all.reduce((sum, t) => sum + t.elements, 0);
  const chapters: Chapter[] = [{ id: "summary", title: "What was merged" }, ...parts, { id: "tensors", title: "Every tensor" }];
  return (
    <>
      <a class="skip" href="#main">To the text</a>
      <ThemeButton />
      <Contents name="Contents" chapters={chapters} />
      <main id="main">
        <header class="opening">
          <p class="kicker">Report of a merge</p>
          <h1>{merge.title}</h1>
          <p class="summary">
            {merge.methodTitle}{merge.methodTitle !== merge.method && <> (<code>{merge.method}</code>)</>} made one model of {plural(merge.inputs.length, "input")}{based && merge.inputs.length > 1 && <>, one of them the base that the others are compared with</>}: {plural(all.length, "tensor")}, {count(elements)} weights.{" "}
            {merge.paper !== "" && <>The method is that of {merge.paperAddress === null ? merge.paper : <a href={merge.paperAddress} rel="noreferrer">{merge.paper}</a>}.</>}
          </p>
          {parts.some((part) => part.figures.length > 0) && <MadeLegend of={["merge"]} />}
          <p class="hint">Every number on this page was measured while the result was computed. What was not measured, or has no meaning for this method, is shown as absent. Point at a picture, touch it, or move to it with the Tab key and walk through it with the arrow keys, to read its values.</p>
        </header>
        <section id="summary" aria-labelledby="heading-summary">
          <h2 id="heading-summary">What was merged</h2>
          <Inputs />
          {merge.notes.length > 0 && <ul class="notes">{merge.notes.map((note, i) => <li key={i}><Prose text={note} /></li>)}</ul>}
          {merge.recipe !== "" && <div class="recipe"><p>The recipe:</p><Copyable label="the recipe" text={merge.recipe} /></div>}
          {outside.length > 0 && layers.length > 0 && <p class="hint">{plural(outside.length, "tensor")} outside the layers (such as embeddings and the final norm) {outside.length === 1 ? "is" : "are"} not in the pictures by layer; the table at the end has all.</p>}
        </section>
        {layers.length === 0 && <p class="absent">No tensor of this merge belongs to a layer, so there are no pictures over layers; the table at the end has all numbers.</p>}
        {parts.map((part) => <Section key={part.id} part={part} />)}
        <section id="tensors" class="all-tensors" aria-labelledby="heading-tensors">
          <h2 id="heading-tensors">Every tensor</h2>
          <p>Press the head of a column to sort by it. A dash stands for what is not known.</p>
          <TensorTable />
        </section>
        <footer><p>Made by vitrine {merge.version}. The page needs no network: its numbers are inside it, under <code>window.vitrine</code>.</p></footer>
      </main>
    </>
  );
}
