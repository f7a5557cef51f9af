// The drawing, opened: a layer and its heads, one head, one row of its attention, one dot product; and the way out again.

import { useLayoutEffect, useRef } from "preact/hooks";
import { vitrine } from "../document";
import { percent } from "../format";
import { paint } from "../heat";
import { useTheme } from "../hooks";
import { toggle } from "../live/actions";
import { useLive } from "../live/state";
import { DotProduct } from "./dot";
import { level, setLook, whole, type Look } from "./look";
import type { Run } from "./run";
import { words } from "./words";

interface Props {
  run: Run;
  names: readonly string[];
  of: Look;
}

export function Closer({ run, names, of }: Props) {
  const at = level(of);
  return (
    <div class="closer" data-level={at}>
      <nav class="closer-path" aria-label="How far the drawing is opened">
        <ol>
          <li><Way here={at === 0} to={whole}>Whole model</Way></li>
          {of.layer !== null && <li><Way here={at === 1} to={{ head: null, query: null, key: null }}>Layer {of.layer}</Way></li>}
          {of.head !== null && <li><Way here={at === 2} to={{ query: null, key: null }}>Head {of.head}</Way></li>}
          {of.query !== null && <li><Way here={at === 3} to={{ key: null }}><bdi>{names[of.query - run.first]}</bdi> looks back</Way></li>}
          {of.key !== null && <li><Way here={at === 4} to={{}}>at <bdi>{names[of.key - run.first]}</bdi></Way></li>}
        </ol>
      </nav>
      {at === 0 && <Layers run={run} />}
      {at === 1 && <Heads run={run} layer={of.layer!} />}
      {at === 2 && <Rows run={run} names={names} layer={of.layer!} head={of.head!} />}
      {at === 3 && <Row run={run} names={names} layer={of.layer!} head={of.head!} query={of.query!} />}
      {at === 4 && <DotProduct run={run} names={names} layer={of.layer!} head={of.head!} query={of.query!} chosen={of.key!} />}
    </div>
  );
}

function Way({ here, to, children }: { here: boolean; to: Partial<Look>; children: preact.ComponentChildren }) {
  return here ? <span aria-current="true">{children}</span> : <button type="button" onClick={() => setLook(to)}>{children}</button>;
}

function Layers({ run }: { run: Run }) {
  return (
    <>
      <p>{words.how}</p>
      <div class="closer-choices">
        <span id="closer-layers">Open a layer:</span>
        <div role="group" aria-labelledby="closer-layers">
          {Array.from({ length: run.layers }, (_, layer) => <button key={layer} type="button" aria-label={`Layer ${layer}`} onClick={() => setLook({ layer, depth: null })}>{layer}</button>)}
        </div>
      </div>
    </>
  );
}

/** What a head does most, by its mean weights. */
function habit(layer: number, head: number): string {
  const attention = vitrine.pictures.attention;
  if (attention?.available !== true) return "";
  const all = [["the first token", attention.onFirst], ["the token before", attention.onPrevious], ["the token itself", attention.onSelf]] as const;
  const [name, share] = all.map(([what, by]) => [what, by[layer]?.[head] ?? 0] as const).reduce((a, b) => (b[1] > a[1] ? b : a));
  return share < 0.25 ? "looks around" : `${percent(share)} on ${name}`;
}

function Heads({ run, layer }: { run: Run; layer: number }) {
  const { engine, off } = useLive();
  return (
    <>
      <p>In layer {layer}, {run.heads === 1 ? "one attention head collects" : `${run.heads} attention heads collect`} something from the tokens before. Each square: who looks (down) at whom (across). Open a head{engine === null ? "" : ", or switch it off and see what becomes of the answer"}.</p>
      <ul class="closer-heads">
        {Array.from({ length: run.heads }, (_, head) => {
          const name = `head ${layer}.${head}`;
          const gone = off.has(name);
          return (
            <li key={head} class={gone ? "gone" : undefined}>
              <button type="button" class="closer-head" onClick={() => setLook({ head })}>
                <Thumb run={run} layer={layer} head={head} />
                <span>Head {head}<small>{gone ? "switched off" : habit(layer, head)}</small></span>
              </button>
              {engine !== null && <Switch layer={layer} head={head} />}
            </li>
          );
        })}
      </ul>
      {engine === null && <p class="hint">A page made with <code>vitrine explain --live</code> holds the model: there a head can be switched off.</p>}
    </>
  );
}

/** Takes a head out of the model, or puts it back. */
function Switch({ layer, head }: { layer: number; head: number }) {
  const { off } = useLive();
  const name = `head ${layer}.${head}`;
  const does = off.has(name) ? "Switch on" : "Switch off";
  return <button type="button" class={off.has(name) ? "closer-switch off" : "closer-switch"} aria-label={`${does} head ${head} of layer ${layer}`} onClick={() => toggle(name)}>{does}</button>;
}

function Thumb({ run, layer, head }: { run: Run; layer: number; head: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    if (canvas.current !== null) paint(canvas.current, run.rows, run.rows, (target, source) => (source > target ? null : run.weight(layer, head, target, source)), "sequential", 1);
  }, [run, layer, head, theme]);
  return <canvas ref={canvas} class="closer-thumb" aria-hidden="true" />;
}

function Rows({ run, names, layer, head }: Omit<Props, "of"> & { layer: number; head: number }) {
  const { engine, off } = useLive();
  const gone = off.has(`head ${layer}.${head}`);
  return (
    <>
      <p>Layer {layer}, head {head}: {gone ? "switched off. It collects nothing." : "every token looks at itself and at the tokens before it. The weights of its looks add up to 100 %."} Choose the token that looks.</p>
      <div class="closer-tokens" role="group" aria-label="The token that looks">
        {names.map((name, row) => <button key={row} type="button" onClick={() => setLook({ query: run.first + row })}><bdi>{name}</bdi></button>)}
      </div>
      {engine !== null && <p><Switch layer={layer} head={head} /></p>}
    </>
  );
}

function Row({ run, names, layer, head, query }: Omit<Props, "of"> & { layer: number; head: number; query: number }) {
  const target = query - run.first;
  const row = names.slice(0, target + 1).map((name, source) => ({ name, source, weight: run.weight(layer, head, target, source) }));
  const seen = row.reduce((sum, one) => sum + one.weight, 0);
  return (
    <>
      <p>One row of attention: how <bdi>{names[target]}</bdi> shares out its look in layer {layer}, head {head}.{seen < 0.995 && run.first > 0 ? ` ${percent(1 - seen)} goes to tokens further up, which are not drawn.` : ""} Choose a token to see where its share comes from.</p>
      <ol class="closer-row" aria-label="Weights">
        {row.map((one) => (
          <li key={one.source} data-weight={one.weight}>
            <button type="button" onClick={() => setLook({ key: run.first + one.source })}><bdi>{one.name}</bdi></button>
            <span class="closer-bar" aria-hidden="true"><i style={{ width: `${100 * one.weight}%` }} /></span>
            <b>{percent(one.weight)}</b>
          </li>
        ))}
      </ol>
    </>
  );
}

