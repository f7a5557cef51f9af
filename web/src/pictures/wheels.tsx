// Sines and cosines of a position as hands on wheels, with a slider for the position.

import { useState } from "preact/hooks";
import { Slider } from "../controls";
import type { SinusoidWheel } from "../data";
import { exact, number, plural, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";

export function Wheels({ picture: p }: { picture: SinusoidWheel }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [k, move] = useState(1);
  const perRow = width > 560 ? p.wheels.length : 2;
  const size = Math.min(Math.floor((width - 12 * (perRow - 1)) / perRow), 190);
  return (
    <div ref={box}>
      {width > 0 && (
        <div class="planes">
          {p.wheels.map((wheel) => {
            const middle = size / 2;
            const radius = middle - 16;
            const angle = k * wheel.frequency;
            const [x, y] = [middle + radius * Math.cos(angle), middle - radius * Math.sin(angle)];
            const before = angle - wheel.frequency;
            const marks: Mark[] = [{ x, y, series: 0, text: `pair ${wheel.pair}, position ${k}\ncosine ${exact(Math.cos(angle))}, sine ${exact(Math.sin(angle))}\n${number(angle / (2 * Math.PI), 3)} turns so far` }];
            return (
              <div key={wheel.pair} class="plane" style={{ width: px(size) }}>
                <p class="panel-title">pair {wheel.pair}: {number(wheel.frequency)} rad a step, once round in {number(wheel.turn)}</p>
                <Drawing label={`Wheel ${wheel.pair} at position ${k}.`} width={size} height={size} marks={marks} reach={size}>
                  <circle class="guide" cx={middle} cy={middle} r={radius} />
                  {k > 0 && <line class="vector plain" style={{ opacity: 0.5 }} x1={middle} y1={middle} x2={middle + radius * Math.cos(before)} y2={middle - radius * Math.sin(before)} />}
                  <line class="vector attention" x1={middle} y1={middle} x2={x} y2={y} />
                  <circle class="to" cx={x} cy={y} r={4} />
                </Drawing>
              </div>
            );
          })}
        </div>
      )}
      <Slider label="Position k" min={0} max={p.C - 1} value={k} onChange={move} says={`${k}`} />
      <p class="remark">
        e({k}) = ({p.wheels.map((wheel) => `${number(Math.sin(k * wheel.frequency))}, ${number(Math.cos(k * wheel.frequency))}`).join(", ")}): {plural(p.wheels.length, "pair")} of sine and cosine. The pale hand is position {Math.max(0, k - 1)}; between the two lies the same angle for every k.
      </p>
    </div>
  );
}
