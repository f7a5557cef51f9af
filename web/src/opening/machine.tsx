// The drawing of the machine and everything that moves it: play, pause, scrub, point, open.

import type { TargetedKeyboardEvent, TargetedMouseEvent, TargetedPointerEvent } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Fold, Slider } from "../controls";
import { tokenAt, vitrine } from "../document";
import { number, percent, px } from "../format";
import { usePrinting, useTheme, useWidth } from "../hooks";
import { useLive } from "../live/state";
import { calm, onCalm } from "../theme";
import { hideTip, showTip } from "../tip";
import { Answer } from "./answer";
import { Closer } from "./closer";
import { level, look, out, setLook, useLook, whole, within } from "./look";
import { place, squares, viewOf } from "./place";
import { wordsOf, type Run } from "./run";
import { Stage } from "./stage";
import { words } from "./words";

/** The drawing begins to move by itself once. */
let begun = false;

export function Machine({ run, changed }: { run: Run; changed: Run | null }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const theme = useTheme();
  const paper = usePrinting();
  const off = useLive((now) => now.off);
  const sizes = { layers: run.layers, heads: run.attention ? run.heads : 0, first: run.first, tokens: run.first + run.rows };
  const asked = useLook();
  const of = within(asked, sizes);
  const depth = of.depth ?? run.layers;
  const row = (of.token ?? run.first + run.rows - 1) - run.first;
  const names = Array.from({ length: run.rows }, (_, at) => tokenAt(run.first + at));
  const heads = new Set([...off].flatMap((name) => /^head (.*)$/.exec(name)?.[1] ?? []));
  const view = viewOf(run, of.layer);
  const canvas = useRef<HTMLCanvasElement>(null);
  const stage = useRef<Stage | null>(null);
  const drawn = place(Math.max(width, 1), run, view);

  useLayoutEffect(() => {
    if (canvas.current === null || width === 0) return;
    stage.current ??= new Stage(canvas.current);
    const here = stage.current;
    if (!of.playing || paper) here.front = paper ? run.layers : depth;
    here.show({ run, changed, off: heads, names, width, view, row, layer: of.layer, head: of.head, query: of.query === null ? null : of.query - run.first, key: of.key === null ? null : of.key - run.first, ahead: !of.playing && !paper }, !calm() && !paper);
  }, [run, changed, [...heads].join(), width, of.layer, of.head, of.query, of.key, row, depth, of.playing, theme, paper]);
  useEffect(() => () => stage.current?.end(), []);

  const play = (from: number) => {
    setLook({ playing: true, depth: from < 1 ? 0 : Math.floor(from), ...whole });
    stage.current?.play(from, (reached, ended) => {
      if (look().playing) setLook(ended ? { depth: null, playing: false } : { depth: reached });
    });
  };
  const pause = () => {
    stage.current?.stop();
    setLook({ playing: false });
  };
  useEffect(() => {
    if (!of.playing) stage.current?.stop();
  }, [of.playing]);
  useEffect(() => onCalm(() => look().playing && setLook({ depth: null, playing: false })), []);
  // Once, when the page opens at its beginning and nothing in its address asks for something else.
  useEffect(() => {
    if (begun || width === 0) return;
    begun = true;
    if (!calm() && !paper && window.scrollY < 40 && location.hash === "" && document.visibilityState === "visible") play(-1);
  }, [width]);

  /** What stands at a depth of a row, in words. */
  const says = (at: number, here: number): string => {
    const list = (changed ?? run).words(at, here);
    const before = changed === null ? undefined : run.words(at, here)[0];
    const length = (changed ?? run).length(at, here);
    const where = here === 0 ? "as it is looked up" : here === run.layers ? "after the last layer" : `after layer ${here - 1}`;
    return [
      `${names[at]} ${where}`,
      ...(list.length === 0 ? [] : [`would say ${list.slice(0, 3).map((one) => `${one.name} ${percent(one.prob)}`).join(", ")}`]),
      ...(before === undefined || before.id === list[0]?.id ? [] : [`before the change: ${before.name} ${percent(before.prob)}`]),
      ...(length === null ? [] : [`length of the residual stream ${number(length)}`]),
      ...(of.layer !== null && of.head !== null && at > 0 ? [`head ${of.layer}.${of.head} looks most at ${mostSeen(at)}`] : []),
    ].join("\n");
  };
  const mostSeen = (at: number): string => {
    const sources = Array.from({ length: at + 1 }, (_, source) => source).sort((a, b) => (changed ?? run).weight(of.layer!, of.head, at, b) - (changed ?? run).weight(of.layer!, of.head, at, a));
    return sources.slice(0, 2).map((source) => `${names[source]} ${percent((changed ?? run).weight(of.layer!, of.head, at, source))}`).join(", ");
  };
  const found = (event: { clientX: number; clientY: number }) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    const at = Math.max(0, Math.min(run.rows - 1, Math.floor((y - drawn.top) / drawn.row)));
    const here = Math.max(Math.ceil(view[0]), Math.min(Math.floor(view[1]), Math.round(view[0] + (x - drawn.left) / drawn.column)));
    const square = squares(drawn, run, view).find((one) => x >= one.x - 2 && x <= one.x + one.side + 2 && y >= one.y - 3 && y <= one.y + one.side + 3);
    const layer = x < drawn.left || x > drawn.right ? null : Math.max(0, Math.min(run.layers - 1, Math.floor(view[0] + (x - drawn.left) / drawn.column)));
    return { at, here: Math.max(0, Math.min(run.layers, here)), square, layer, above: y < drawn.top };
  };
  const point = (event: TargetedPointerEvent<HTMLCanvasElement>) => {
    const { at, here, square, above, layer } = found(event);
    if (square !== undefined) return showTip(`layer ${square.layer}, head ${square.head}\n${heads.has(`${square.layer}.${square.head}`) ? "switched off" : "open it with a click"}`, event.clientX, event.clientY);
    if (above) return layer === null ? hideTip() : showTip(`layer ${layer}\nopen it with a click`, event.clientX, event.clientY);
    showTip(says(at, here), event.clientX, event.clientY);
  };
  const pick = (event: TargetedMouseEvent<HTMLCanvasElement>) => {
    const { at, square, layer, above } = found(event);
    const position = run.first + at;
    pause();
    if (square !== undefined && run.attention) return setLook({ ...whole, depth: null, layer: square.layer, head: square.head });
    if (layer === null) return setLook({ token: position === run.first + run.rows - 1 ? null : position, depth: null });
    if (above || of.layer === null) return setLook({ ...whole, layer, depth: null, ...(above ? {} : { token: position === run.first + run.rows - 1 ? null : position }) });
    if (of.head === null) return setLook({ token: position === run.first + run.rows - 1 ? null : position });
    if (of.query === null || position > of.query) return setLook({ query: position, key: null });
    setLook({ key: position });
  };
  const keys = (event: TargetedKeyboardEvent<HTMLCanvasElement>) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const go = (at: number, here: number) => {
      event.preventDefault();
      pause();
      setLook({ token: at === run.rows - 1 ? null : run.first + at, depth: here === run.layers ? null : here });
      const [x, y] = [Math.max(drawn.left, Math.min(drawn.right, drawn.x(here))), drawn.y(at)];
      showTip(says(at, here), bounds.left + x, bounds.top + y, true);
    };
    const moves: Record<string, () => void> = {
      ArrowRight: () => go(row, Math.min(run.layers, depth + 1)),
      ArrowLeft: () => go(row, Math.max(0, depth - 1)),
      ArrowDown: () => go(Math.min(run.rows - 1, row + 1), depth),
      ArrowUp: () => go(Math.max(0, row - 1), depth),
      Home: () => go(row, 0),
      End: () => go(row, run.layers),
      Enter: () => {
        event.preventDefault();
        pause();
        if (of.layer === null) setLook({ ...whole, layer: Math.max(0, depth - 1), depth: null });
        else if (of.head === null && run.attention) setLook({ head: 0 });
        else if (of.query === null && of.head !== null) setLook({ query: run.first + row });
      },
      Escape: () => {
        hideTip();
        if (level(of) > 0) setLook(out(of));
      },
    };
    moves[event.key]?.();
  };

  const atEnd = depth === run.layers;
  const where = depth === 0 ? "before the first layer" : atEnd ? "" : `after layer ${depth - 1}`;
  const spoken = atEnd ? `After ${names[row]} the model says` : `${names[row]}, ${where}: it would say`;
  const label = `${words.alt(vitrine.model, run.rows)} At the end ${names.at(-1)} is followed by ${(changed ?? run).words(run.rows - 1, run.layers)[0]?.name ?? "nothing"}.`;
  return (
    <figure class="machine" aria-labelledby="machine-says">
      <p class="unseen" id="machine-says">{label}</p>
      <div class="machine-drawing" ref={box} style={{ minHeight: px(drawn.height) }}>
        <canvas
          ref={canvas}
          style={{ height: px(drawn.height) }}
          role="application"
          aria-roledescription="drawing"
          aria-label={`${label} Arrow keys move through depths and tokens, Enter opens a layer, Escape leads out.`}
          tabIndex={0}
          onPointerMove={point}
          onPointerLeave={hideTip}
          onBlur={hideTip}
          onClick={pick}
          onKeyDown={keys}
        />
      </div>
      <div class="machine-controls">
        <button type="button" class="machine-play" aria-label={of.playing ? "Pause" : "Play the run"} onClick={() => (of.playing ? pause() : play(atEnd || depth === 0 ? -1 : depth))}>{of.playing ? "❚❚ Pause" : "▶ Play"}</button>
        <Slider label="Layers" min={0} max={run.layers} value={depth} onChange={(to) => { pause(); setLook({ depth: to === run.layers ? null : to }); }} says={depth === 0 ? "none yet" : atEnd ? `all ${run.layers}` : `up to layer ${depth - 1}`} />
        <Slider label="Token" min={run.first} max={run.first + run.rows - 1} value={run.first + row} onChange={(to) => setLook({ token: to === run.first + run.rows - 1 ? null : to })} says={names[row]!} />
      </div>
      <Said says={spoken} run={run} changed={changed} row={row} depth={depth} />
      <Closer run={changed ?? run} names={names} of={of} />
      <figcaption>
        <ul class="machine-legend">
          <li><i class="line" aria-hidden="true" />{words.legend.line}</li>
          {run.lens && <li><i class="word" aria-hidden="true">a</i>{words.legend.word}</li>}
          {run.attention && <li><i class="arc" aria-hidden="true" />{words.legend.arc}{of.head === null ? ` (${words.legend.mean})` : ` (head ${of.layer}.${of.head} in its layer)`}</li>}
          {changed !== null && <li><i class="outline" aria-hidden="true" /> before the change <i class="filled" aria-hidden="true" /> after it; words that changed are orange</li>}
        </ul>
        {run.lens && <Fold summary="What each token would say, as a table">{() => <WordTable run={run} changed={changed} names={names} />}</Fold>}
      </figcaption>
    </figure>
  );
}

/** At the end of the last token, of the engine's own answer, which comes first. */
function Said({ says, run, changed, row, depth }: { says: string; run: Run; changed: Run | null; row: number; depth: number }) {
  const end = depth === run.layers && row === run.rows - 1;
  const plain = useLive((now) => (end ? now.plain : null));
  const edited = useLive((now) => (end ? now.changed : null));
  const before = plain === null ? run.words(row, depth) : wordsOf(plain.next);
  const after = plain !== null && edited !== null ? wordsOf(edited.next) : changed === null ? null : changed.words(row, depth);
  return <Answer says={says} before={before} after={after} />;
}

function WordTable({ run, changed, names }: { run: Run; changed: Run | null; names: readonly string[] }) {
  const depths = Array.from({ length: run.layers + 1 }, (_, depth) => depth);
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="What each token would say after each layer">
      <table>
        <thead><tr><th scope="col">token</th>{depths.map((depth) => <th key={depth} scope="col">{depth === 0 ? "embedding" : `layer ${depth - 1}`}</th>)}</tr></thead>
        <tbody>
          {names.map((name, row) => (
            <tr key={row}>
              <th scope="row"><bdi>{name}</bdi></th>
              {depths.map((depth) => {
                const [word, was] = [(changed ?? run).words(row, depth)[0], run.words(row, depth)[0]];
                return <td key={depth}>{word !== undefined && <><bdi>{word.name}</bdi> {percent(word.prob)}{changed !== null && was !== undefined && was.id !== word.id && <small> was <bdi>{was.name}</bdi></small>}</>}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
