// A picture by name, and the frame around it. What a picture declares in its document is drawn as it says; those with drawings of
// their own stand here.

import type { JSX } from "preact";
import { Charts } from "../charts";
import type { PictureName } from "../data";
import { edition, vitrine } from "../document";
import { Figure } from "../figure";
import { tablesOf } from "../tables";
import { Attentions } from "./attention";
import { Attribution } from "./attribution";
import { Block } from "./block";
import { Dot } from "./dot";
import { Choices } from "./experts";
import { Grouping, Softmax } from "./heads";
import { Between, Tasks } from "./merging";
import { Surfaces } from "./mlp";
import { Geometry } from "./norms";
import { Shuffles } from "./permutations";
import { Lens, Next } from "./prediction";
import { Reaches } from "./reach";
import { Rotation } from "./rope";
import { MergeTrees, SplitRows, Tokens } from "./tokens";
import { Wheels } from "./wheels";

// Each takes the picture of its name, which the compiler cannot follow through the lookup.
const drawings: Record<string, (props: { picture: never }) => JSX.Element> = {
  "dot-product": Dot,
  tokens: Tokens,
  merges: MergeTrees,
  splits: SplitRows,
  "layer-norm": Geometry,
  "head-grouping": Grouping,
  softmax: Softmax,
  attention: Attentions,
  "rope-rotation": Rotation,
  "mlp-surfaces": Surfaces,
  experts: Choices,
  "next-tokens": Next,
  "logit-lens": Lens,
  "logit-attribution": Attribution,
  reach: Reaches,
  interpolation: Between,
  "task-vectors": Tasks,
  "block-diagram": Block,
  permutations: Shuffles,
  "sinusoid-wheel": Wheels,
};

export function Picture({ name }: { name: PictureName }): JSX.Element | null {
  const picture = vitrine.pictures[name];
  if (picture === undefined) return null;
  if (!picture.available)
    return (
      <div class="absent" data-picture={name}>
        <strong>{picture.title}</strong> {picture.reason}
      </div>
    );
  const Draw = (drawings[name] ?? Charts) as (props: { picture: unknown }) => JSX.Element;
  return (
    <Figure name={name} title={picture.title} caption={picture.caption} alt={picture.alt} made={picture.made} wide={picture.wide} table={() => tablesOf(picture)}>
      <Draw key={edition} picture={picture} />
    </Figure>
  );
}
