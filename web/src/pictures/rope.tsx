// Rotary positions: a vector turned position by position, how long each turn takes, and which pairs a head uses.

import { useState } from "preact/hooks";
import { Slider } from "../controls";
import type { RopeRotation } from "../data";
import { exact, number, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";

export function Rotation({ picture: p }: { picture: RopeRotation }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const last = (p.components[0]?.points.length ?? 1) - 1;
  const [shift, set] = useState(0);
  const perRow = width > 460 ? p.components.length : 1;
  const size = Math.min(Math.floor((width - 16 * (perRow - 1)) / perRow), 330);
  return (
    <div ref={box}>
      {width > 0 && (
        <div class="planes">
          {p.components.map((c) => <Circle key={c.component} component={c} size={size} shift={shift} />)}
        </div>
      )}
      <Slider label="Move all positions along by" min={0} max={24} value={shift} onChange={set} says={`${shift}: k₀ stands at position ${shift}; the angles between the vectors stay`} />
      <p class="remark">
        At frequency {number(p.components[0]?.frequency)}: k₀ · k₁ = {number(p.dot[0]?.[1], 4)}
        {last >= 2 && <>, k₁ · k₂ = {number(p.dot[1]?.[2], 4)}, k₀ · k₂ = {number(p.dot[0]?.[2], 4)}</>}. Only the distance counts.
      </p>
    </div>
  );
}

function Circle({ component: c, size, shift }: { component: RopeRotation["components"][number]; size: number; shift: number }) {
  const middle = size / 2;
  const radius = middle - 34;
  // Moving by `shift` positions turns every vector by the same further angle.
  const turned = c.points.map(([x, y]) => {
    const angle = Math.atan2(y, x) + shift * c.frequency;
    return [Math.cos(angle), Math.sin(angle)] as const;
  });
  const marks: Mark[] = turned.map(([x, y], i) => ({
    x: middle + x * radius,
    y: middle - y * radius,
    series: 0,
    text: `k${i}, position ${i + shift}\n(${exact(x)}, ${exact(y)})\nangle ${number((i + shift) * c.frequency, 5)} radians`,
  }));
  return (
    <div class="plane" style={{ width: px(size) }}>
      <p class="panel-title">pair {c.component} of {c.of}: frequency {number(c.frequency, 4)}, once round in {number(c.wavelength, 4)} tokens</p>
      <Drawing label={`The vector (1, 0) at positions 0 to ${turned.length - 1}, turned with frequency ${number(c.frequency, 4)}.`} width={size} height={size} marks={marks} reach={40}>
        <circle class="guide" cx={middle} cy={middle} r={radius} />
        {turned.map(([x, y], i) => (
          <g key={i}>
            <line class="vector attention" style={{ opacity: 1 - (0.6 * i) / Math.max(1, turned.length - 1) }} x1={middle} y1={middle} x2={middle + x * radius} y2={middle - y * radius} />
            <circle class="to" cx={middle + x * radius} cy={middle - y * radius} r={4} />
            <text x={middle + x * (radius + 17)} y={middle - y * (radius + 17)} dy="0.34em" text-anchor="middle">k<tspan class="sub" dy="3">{i}</tspan></text>
          </g>
        ))}
      </Drawing>
    </div>
  );
}
