// One head, large: every weight with its tokens, or for long prompts an overview in bins, a window of it, and single rows.

import { useMemo, useState } from "preact/hooks";
import { Bars } from "../bars";
import { Fold, Slider } from "../controls";
import type { Attention } from "../data";
import { place, tokenAt, tokenNames } from "../document";
import { exact, plural } from "../format";
import { Heat } from "../heat";
import { Reproduce, type Reproduction } from "../recipe";
import { headOff } from "../recipes";
import { largest, square, weightShare, weightText, zoomed } from "./attention-data";

interface Props {
  picture: Attention;
  layer: number;
  head: number;
  about: string;
}

const windowSize = 48;

export function Enlarged({ picture: p, layer, head, about }: Props) {
  const [target, setTarget] = useState(p.nTokens - 1);
  const [picked, pick] = useState<Reproduction | null>(null);
  const [corner, zoom] = useState<readonly [number, number] | null>(null);
  const value = useMemo(() => square(p, layer, head), [p, layer, head]);
  const sources = useMemo(() => largest(p, layer, head, target, p.level === "full" ? 12 : p.top!.k), [p, layer, head, target]);
  const lines = about.split("\n");
  return (
    <div class="enlarged" aria-label={`Layer ${layer}, head ${head}, enlarged`} role="group">
      <div class="enlarged-grid">
        <p class="row-title">Layer {layer}, head {head}</p>
        {p.level === "full"
          ? (
            <Heat
              label={`Attention of layer ${layer}, head ${head}.`}
              rows={p.nTokens}
              cols={p.nTokens}
              value={value}
              scale="sequential"
              most={1}
              rowNames={tokenNames}
              colNames={tokenNames}
              rowTitle="target ↓"
              colTitle="source →"
              cell={44}
              write={(v) => (v < 0.005 ? "" : v.toFixed(2))}
              picks="how to reproduce it, and switch the head off there"
              onPick={(row) => {
                setTarget(row);
                pick(headOff(layer, head, { position: row }));
              }}
              describe={(row, col) => `${place(row)} looks at ${place(col)}\n${value(row, col) === null ? "masked: it comes later" : `weight ${weightText(value(row, col)!)}`}\nlayer ${layer}, head ${head}`}
            />
          )
          : <Overview picture={p} layer={layer} head={head} value={value} onPick={(row, col) => {
            zoom([row, col]);
            setTarget(Math.min(row, p.nTokens - 1));
          }} />}
        {corner !== null && p.level === "tiles" && <Window picture={p} layer={layer} head={head} corner={corner} onPick={setTarget} />}
      </div>
      <div class="enlarged-side">
        <ul class="facts">{lines.slice(1).map((line) => <li key={line}>{line}</li>)}</ul>
        <p class="row-title">What <bdi>{tokenAt(target)}</bdi> looks at</p>
        <Slider label="Target" min={0} max={p.nTokens - 1} value={target} onChange={setTarget} says={place(target)} />
        <Bars
          label={`Largest weights of ${place(target)} in layer ${layer}, head ${head}.`}
          most={1}
          bars={sources.map((s) => ({
            name: p.level === "full" ? tokenAt(s.source) : `${tokenAt(s.source)} ${s.source}`,
            value: s.weight,
            tone: "attention",
            note: weightShare(s.weight),
            text: `${place(target)} looks at ${place(s.source)}\nweight ${weightText(s.weight)}`,
          }))}
        />
        <p><button type="button" class="more" onClick={() => pick(headOff(layer, head))}>How to reproduce this head, and switch it off</button></p>
        <Fold summary="Weights of this head as a table">{() => <Weights picture={p} layer={layer} head={head} />}</Fold>
      </div>
      {picked !== null && <Reproduce key={picked.title} of={picked} onClose={() => pick(null)} />}
    </div>
  );
}

interface OverviewProps {
  picture: Attention;
  layer: number;
  head: number;
  value: (row: number, col: number) => number | null;
  /** With the tokens in the middle of the bin. */
  onPick: (target: number, source: number) => void;
}

function Overview({ picture: p, layer, head, value, onPick }: OverviewProps) {
  const { bins, tokensPerBin } = p.tiles!;
  const middle = (bin: number) => Math.min(Math.floor((bin + 0.5) * tokensPerBin), p.nTokens - 1);
  const range = (bin: number) => `${bin * tokensPerBin} to ${Math.min((bin + 1) * tokensPerBin, p.nTokens) - 1}`;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (bins - 1))).map((at) => ({ at, text: String(at * tokensPerBin) }));
  const names = useMemo(() => Array.from({ length: bins }, (_, bin) => String(bin * tokensPerBin)), [bins, tokensPerBin]);
  return (
    <>
      <Heat
        label={`Overview of layer ${layer}, head ${head}: the largest weight of every ${tokensPerBin} by ${tokensPerBin} tokens.`}
        rows={bins}
        cols={bins}
        value={value}
        scale="sequential"
        most={1}
        rowNames={names}
        colNames={[]}
        rowTitle="target ↓"
        bottomTicks={ticks}
        bottomTitle="source, position"
        cell={8}
        picks="the tokens there one by one"
        onPick={(row, col) => onPick(middle(row), middle(col))}
        describe={(row, col) => `targets ${range(row)}, sources ${range(col)}\n${value(row, col) === null ? "masked: they come later" : `largest weight ${weightText(value(row, col)!)}`}\nfrom ${tokenAt(row * tokensPerBin)} to ${tokenAt(col * tokensPerBin)}`}
      />
      <p class="remark">Each cell is the largest of {tokensPerBin} × {tokensPerBin} weights. Click one to see its tokens.</p>
    </>
  );
}

function Window({ picture: p, layer, head, corner, onPick }: { picture: Attention; layer: number; head: number; corner: readonly [number, number]; onPick: (target: number) => void }) {
  const start = (middle: number) => Math.max(0, Math.min(middle - windowSize / 2, p.nTokens - windowSize));
  const [fromTarget, fromSource] = [start(corner[0]), start(corner[1])];
  const size = Math.min(windowSize, p.nTokens);
  const value = useMemo(() => zoomed(p, layer, head, fromTarget, fromSource, size), [p, layer, head, fromTarget, fromSource, size]);
  const names = (from: number) => Array.from({ length: size }, (_, i) => tokenAt(from + i));
  return (
    <>
      <p class="row-title">Targets {fromTarget} to {fromTarget + size - 1}, sources {fromSource} to {fromSource + size - 1}</p>
      <Heat
        label={`Tokens of layer ${layer}, head ${head} one by one.`}
        rows={size}
        cols={size}
        value={value}
        scale="sequential"
        most={1}
        rowNames={names(fromTarget)}
        colNames={names(fromSource)}
        rowTitle="target ↓"
        colTitle="source →"
        cell={16}
        picks="the row's largest weights"
        onPick={(row) => onPick(fromTarget + row)}
        describe={(row, col) => {
          const weight = value(row, col);
          const says = weight === null ? "masked: it comes later" : weight === 0 ? `not among the ${p.top!.k} largest of its row` : `weight ${exact(weight)}`;
          return `${place(fromTarget + row)} looks at ${place(fromSource + col)}\n${says}`;
        }}
      />
      <p class="remark">The {p.top!.k} largest weights of each row are here; the rest of the row is drawn as 0.</p>
    </>
  );
}

const rowsInTable = 64;

function Weights({ picture: p, layer, head }: { picture: Attention; layer: number; head: number }) {
  const n = Math.min(p.nTokens, rowsInTable);
  return (
    <>
      {n < p.nTokens && <p>The first {plural(n, "target")} of {p.nTokens}.</p>}
      <div class="table-scroll" tabIndex={0} role="region" aria-label={`Weights of layer ${layer}, head ${head}`}>
        <table>
          <thead><tr><th scope="col">target</th><th scope="col">largest weights</th></tr></thead>
          <tbody>
            {Array.from({ length: n }, (_, target) => (
              <tr key={target}>
                <th scope="row"><bdi>{place(target)}</bdi></th>
                <td><bdi>{largest(p, layer, head, target, p.level === "full" ? target + 1 : p.top!.k).map((s) => `${place(s.source)} ${weightText(s.weight)}`).join("; ")}</bdi></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
