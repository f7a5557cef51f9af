// The dot product as a test of agreement: a fan of vectors around a, and one that the reader can turn.

import { useState } from "preact/hooks";
import { Slider } from "../controls";
import type { DotProduct } from "../data";
import { number, px } from "../format";
import { useWidth } from "../hooks";
import { Drawing, type Mark } from "../marks";

export function Dot({ picture }: { picture: DotProduct }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [degrees, turn] = useState(40);
  const length = Math.hypot(...picture.a);
  const base = Math.atan2(picture.a[1], picture.a[0]);
  const longest = Math.max(...picture.vectors.map((v) => Math.hypot(...v.x)));
  const height = 250;
  const unit = Math.min((width - 130) / (longest + 1.15) / length, 150);
  const origin = [Math.max(90, (width - unit * (longest - 1)) / 2), height - 44] as const;
  const at = ([x, y]: readonly [number, number]) => [origin[0] + x * unit, origin[1] - y * unit] as const;
  const mine: [number, number] = [Math.cos(base + (degrees * Math.PI) / 180) * length, Math.sin(base + (degrees * Math.PI) / 180) * length];
  const dot = mine[0] * picture.a[0] + mine[1] * picture.a[1];
  const shadow = at([(picture.a[0] * dot) / length ** 2, (picture.a[1] * dot) / length ** 2]);
  const marks: Mark[] = picture.vectors.map((v) => {
    const [x, y] = at(v.x);
    return { x, y, series: 0, text: `x = (${number(v.x[0], 4)}, ${number(v.x[1], 4)})\nx · a = ${number(v.dot, 6)}` };
  });
  const head = (x: number, y: number, tone: string) => {
    const angle = Math.atan2(y - origin[1], x - origin[0]);
    const corner = (turned: number) => `${x - 10 * Math.cos(angle + turned)},${y - 10 * Math.sin(angle + turned)}`;
    return <polygon class={`arrow ${tone}`} points={`${x},${y} ${corner(0.36)} ${corner(-0.36)}`} />;
  };
  const tip = at(mine);
  const a = at(picture.a);
  return (
    <div ref={box} style={{ minHeight: px(height) }}>
      {width > 0 && (
        <>
          <Drawing label="Vectors around the origin and their dot products with a." width={width} height={height} marks={marks} class="dot">
            {picture.vectors.map((v) => {
              const [x, y] = at(v.x);
              const out = Math.hypot(x - origin[0], y - origin[1]);
              const [dx, dy] = [(x - origin[0]) / out, (y - origin[1]) / out];
              const anchor = dx > 0.3 ? "start" : dx < -0.3 ? "end" : "middle";
              return (
                <g key={v.label}>
                  <line class="vector plain" x1={origin[0]} y1={origin[1]} x2={x - 6 * dx} y2={y - 6 * dy} />
                  {head(x, y, "plain")}
                  <text x={x + dx * 10} y={y + dy * 12} dy={Math.abs(dy) < 0.3 ? "0.34em" : undefined} text-anchor={anchor}>{width > 480 ? `x · a = ${v.label}` : v.label}</text>
                </g>
              );
            })}
            <line class="vector mlp" x1={origin[0]} y1={origin[1]} x2={tip[0]} y2={tip[1]} />
            <line class="shadow" x1={tip[0]} y1={tip[1]} x2={shadow[0]} y2={shadow[1]} />
            {head(tip[0], tip[1], "mlp")}
            <line class="vector heavy" x1={origin[0]} y1={origin[1]} x2={a[0] - 8} y2={a[1]} />
            {head(a[0], a[1], "heavy")}
            <text class="heavy" x={(origin[0] + a[0]) / 2 + 14} y={origin[1] + 20} text-anchor="middle">a</text>
          </Drawing>
          <Slider label="Turn the orange x" min={0} max={180} step={5} value={degrees} onChange={turn} says={`${degrees}°: x · a = ${number(Math.abs(dot) < 1e-9 ? 0 : dot, 3)}`} />
        </>
      )}
    </div>
  );
}
