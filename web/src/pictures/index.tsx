// A picture by name, and the frame around it. What a picture declares in its document is drawn as it says; those with drawings of
// their own stand here.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { Charts } from "../charts";
import type { PictureName } from "../data";
import { vitrine } from "../document";
import { Figure } from "../figure";
import { Changes, useEdited } from "../live/changes";
import { tablesOf } from "../tables";
import { Attentions } from "./attention";
import { Attribution } from "./attribution";
import { Sharing, SideBySide } from "./designs";
import { Beams } from "./beams";
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
import { Film } from "./training-film";
import { Vocabulary } from "./vocabulary";
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
  designs: SideBySide,
  "head-sharing": Sharing,
  "vocabulary-growth": Vocabulary,
  "training-film": Film,
  "beam-search": Beams,
  "block-diagram": Block,
  permutations: Shuffles,
  "sinusoid-wheel": Wheels,
};

const numbers = new WeakMap<object, number>();
let count = 0;

/** Another one for each picture that takes this one's place. */
function numberOf(picture: object): number {
  const known = numbers.get(picture) ?? ++count;
  numbers.set(picture, known);
  return known;
}

export function Picture({ name }: { name: PictureName }): JSX.Element | null {
  const own = vitrine.pictures[name];
  const edited = useEdited(name);
  const picture = edited ?? own;
  // Drawn once for each picture: the page's text may change around it, and while others are on their way it is that of another prompt.
  const drawing = useMemo(() => {
    if (picture?.available !== true) return null;
    const Draw = (drawings[name] ?? Charts) as (props: { picture: unknown }) => JSX.Element;
    return <Draw key={numberOf(picture)} picture={picture} />;
  }, [picture]);
  if (picture === undefined) return null;
  if (!picture.available)
    return (
      <div class="absent" data-picture={name}>
        <strong>{picture.title}</strong> {picture.reason}
      </div>
    );
  return (
    <Figure name={name} title={picture.title} caption={picture.caption} alt={picture.alt} made={picture.made} wide={picture.wide} table={() => tablesOf(picture)}>
      <Changes made={picture.made} edited={edited !== null} />
      {drawing}
    </Figure>
  );
}
