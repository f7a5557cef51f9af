// Every picture by name, and the frame around each.

import type { JSX } from "preact";
import type { PictureName } from "../data";
import { edition, vitrine } from "../document";
import { Figure, type Table } from "../figure";
import type { Made } from "../made";
import { attention } from "./attention";
import { logitAttribution } from "./attribution";
import { dotProduct } from "./dot";
import { embeddingCosine, embeddingNeighbors, embeddingRescaling, positionVectors } from "./embedding";
import type { Entry } from "./entry";
import { expertLoad, experts } from "./experts";
import { gradientHooks, gradientNorms, inputAttribution } from "./gradients";
import { headGrouping, softmaxRow } from "./heads";
import { interpolation, taskVectors } from "./merging";
import { activationCurves, mlpSurfaces } from "./mlp";
import { finalNorm, layerNorm, normStatistics } from "./norms";
import { logitLens, nextTokens } from "./prediction";
import { reach } from "./reach";
import { residualScale, updateScale } from "./residual";
import { queryLength, ropeRotation, ropeWavelengths } from "./rope";
import { softCap } from "./softcap";
import { merges, splits, tokensPicture } from "./tokens";

const entries: { [N in PictureName]: Entry<N> } = {
  "dot-product": dotProduct,
  tokens: tokensPicture,
  merges,
  splits,
  "embedding-cosine": embeddingCosine,
  "embedding-neighbors": embeddingNeighbors,
  "position-vectors": positionVectors,
  "embedding-rescaling": embeddingRescaling,
  "update-scale": updateScale,
  "residual-scale": residualScale,
  "layer-norm": layerNorm,
  "norm-statistics": normStatistics,
  "head-grouping": headGrouping,
  softmax: softmaxRow,
  attention,
  "soft-cap": softCap,
  "rope-rotation": ropeRotation,
  "rope-wavelengths": ropeWavelengths,
  "query-length": queryLength,
  "activation-curves": activationCurves,
  "mlp-surfaces": mlpSurfaces,
  experts,
  "expert-load": expertLoad,
  "final-norm": finalNorm,
  "next-tokens": nextTokens,
  "logit-lens": logitLens,
  "logit-attribution": logitAttribution,
  "input-attribution": inputAttribution,
  reach,
  "gradient-norms": gradientNorms,
  "gradient-hooks": gradientHooks,
  interpolation,
  "task-vectors": taskVectors,
};

// An entry and its picture always have the same name; which one, the compiler cannot follow through the lookup.
interface Loose {
  draw: (props: { picture: unknown }) => JSX.Element;
  table: (picture: unknown) => Table;
  made: readonly Made[];
  wide?: boolean | ((picture: unknown) => boolean);
}

export function Picture({ name }: { name: PictureName }): JSX.Element | null {
  const picture = vitrine.pictures[name];
  if (picture === undefined) return null;
  if (!picture.available)
    return (
      <div class="absent" data-picture={name}>
        <strong>{picture.title}</strong> {picture.reason}
      </div>
    );
  const { draw, table, made, wide } = entries[name] as unknown as Loose;
  const Draw = draw;
  return (
    <Figure name={name} title={picture.title} caption={picture.caption} alt={picture.alt} made={made} wide={typeof wide === "function" ? wide(picture) : wide === true} table={() => table(picture)}>
      <Draw key={edition} picture={picture} />
    </Figure>
  );
}
