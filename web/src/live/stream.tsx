// The residual stream at one position: how it grows from layer to layer, and what the head would say of it at each depth.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Slider } from "../controls";
import type { LogitLens, Vitrine } from "../data";
import { named } from "../document";
import { number, percent } from "../format";
import { paint } from "../heat";
import { useTheme } from "../hooks";
import { lensCommand, traceCommand } from "./commands";
import { WithTheProgram } from "./program";
import { promptField, useLive } from "./state";

interface Depth {
  name: string;
  vector: number[];
}

interface Seen {
  depths: Depth[];
  lens: { piece: string; prob: number }[];
}

interface Answer {
  hooks: { name: string; values: number[][] }[];
}

function streamHooks(position: number): string[] {
  return ["hook_embed", "blocks.*.hook_resid_mid", "blocks.*.hook_resid_post"].map((hook) => `${hook}[positions=${position}]`);
}

function depthName(hook: string): string {
  const layer = /^blocks\.(\d+)\./.exec(hook)?.[1];
  return layer === undefined ? "embedding" : hook.endsWith("mid") ? `layer ${layer}, attention` : `layer ${layer}, MLP`;
}

export function Stream({ active }: { active: boolean }) {
  const { engine, prompt, plain } = useLive();
  const [position, setPosition] = useState<number | null>(null);
  const [seen, set] = useState<Seen | null>(null);
  const [trouble, tell] = useState("");
  const last = (plain?.tokens.length ?? 1) - 1;
  const at = Math.min(position ?? last, last);
  useEffect(() => {
    if (!active || plain === null || engine === null) return;
    let gone = false;
    Promise.all([
      engine.ask<Answer>("inspect", { ...promptField(prompt), hooks: streamHooks(at) }, "stream"),
      engine.ask<Vitrine>("document", { ...promptField(prompt), pictures: ["logit-lens"], position: at }, "lens"),
    ]).then(([answer, document]) => {
      if (gone || answer === null || document === null) return;
      set({ depths: answer.hooks.map((hook) => ({ name: depthName(hook.name), vector: hook.values[0]! })), lens: lensOf(document, at) });
      tell("");
    }).catch((error: unknown) => tell(error instanceof Error ? error.message : String(error)));
    return () => {
      gone = true;
    };
  }, [active, plain?.tokens.join(), at]);
  const name = plain === null ? "" : named(plain.pieces[at], plain.tokens[at]!);
  return (
    <>
      <Slider label="Position" min={0} max={Math.max(last, 0)} value={at} onChange={setPosition} says={`${at}: ${name}`} />
      {trouble !== "" && <p role="alert">{trouble}</p>}
      {seen !== null && <Growth seen={seen} />}
      <WithTheProgram commands={[traceCommand(prompt, streamHooks(at)), lensCommand(prompt)]} />
    </>
  );
}

/** What the lens says after each layer, in the order of the stream's depths: embedding, then twice a layer. */
function lensOf(document: Vitrine, position: number): { piece: string; prob: number }[] {
  const lens = document.pictures["logit-lens"] as LogitLens | undefined;
  const row = lens?.positions?.indexOf(position) ?? -1;
  if (lens === undefined || row < 0) return [];
  return lens.depths.map((_, depth) => {
    const id = lens.ids[row]![depth]![0]!;
    return { piece: named(document.pieces[String(id)], id), prob: lens.probs[row]![depth]![0]! };
  });
}

function Growth({ seen: { depths, lens } }: { seen: Seen }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const most = Math.max(...depths.map((depth) => Math.hypot(...depth.vector)));
  useLayoutEffect(() => {
    const strongest = depths.flatMap((depth) => depth.vector.map(Math.abs)).sort((a, b) => b - a);
    if (canvas.current !== null) paint(canvas.current, depths.length, depths[0]!.vector.length, (row, col) => depths[row]!.vector[col]!, "diverging", strongest[Math.floor(strongest.length / 100)] ?? 1);
  }, [depths, theme]);
  return (
    <div class="growth">
      <canvas ref={canvas} role="img" aria-label={`The ${depths[0]!.vector.length} numbers of the stream at ${depths.length} depths, negative orange and positive blue`} />
      <ol aria-label="The stream by depth">
        {depths.map((depth, i) => {
          const size = Math.hypot(...depth.vector);
          const word = i % 2 === 0 ? lens[i / 2] : undefined;
          return (
            <li key={depth.name} data-length={size}>
              <span>{depth.name}</span>
              <span class="live-bar" aria-hidden="true"><i class={i % 2 === 1 ? "kept" : "kept mlp"} style={{ width: `${(100 * size) / most}%` }} /></span>
              <span class="live-figure">{number(size)}</span>
              <span>{word !== undefined && <><bdi>{word.piece}</bdi> <small>{percent(word.prob)}</small></>}</span>
            </li>
          );
        })}
      </ol>
    </div>
  );
}
