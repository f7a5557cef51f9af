// A surface over a square of inputs, seen from above at an angle that the reader can turn. Painted back to front.

import type { TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { axis } from "./axes";
import { px } from "./format";
import { useTheme } from "./hooks";
import { theme } from "./theme";
import { hideTip, showTip } from "./tip";

export type Input = readonly [number, number];

interface Props {
  label: string;
  /** Of the height. */
  name: string;
  /** Inputs along each axis; height[i * n + j] at (x[i], x[j]). */
  x: readonly number[];
  height: ArrayLike<number>;
  /** Color at an input, with strength 0 to 1 for the light that falls on it. */
  color: (a: number, b: number, light: number) => string;
  /** Cuts a polygon of inputs where the color changes, so that borders are exact. */
  split?: (polygon: readonly Input[]) => readonly (readonly Input[])[];
  size: number;
  /** Heights that touch the bottom and the top. */
  low: number;
  high: number;
  /** In radians. */
  turn: number;
  onTurn: (turn: number) => void;
  /** The slice at x[1] = x[line] is drawn on the surface. */
  line?: number;
  describe: (i: number, j: number) => string;
}

const whole = (polygon: readonly Input[]) => [polygon];
const tilt = 0.52;  // sine of the angle at which the eye looks down

export function Surface({ label, name, x, height, color, split = whole, size, low, high, turn, onTurn, line, describe }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<number | null>(null);
  const at = useRef<readonly [number, number] | null>(null);
  const shade = useTheme();
  const n = x.length;
  const tall = Math.round(size * 0.92);

  const project = (i: number, j: number, z: number): readonly [number, number, number] => {
    const [u, v] = [(2 * i) / (n - 1) - 1, (2 * j) / (n - 1) - 1];
    const right = u * Math.cos(turn) - v * Math.sin(turn);
    const back = u * Math.sin(turn) + v * Math.cos(turn);
    const up = ((z - low) / (high - low || 1)) * 2 - 1;
    const unit = size / 3.2;
    return [size / 2 + right * unit, tall / 2 - back * unit * tilt - up * unit * 0.62, back];
  };

  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (element === null || context === null || context === undefined) return;
    const dpr = Math.min(window.devicePixelRatio || 1, 3);
    element.width = size * dpr;
    element.height = tall * dpr;
    context.scale(dpr, dpr);
    context.clearRect(0, 0, size, tall);
    const ink = theme() === "dark" ? "rgba(255,255,255,0.45)" : "rgba(0,0,0,0.4)";
    context.font = "13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const base: [number, number][] = [[0, 0], [n - 1, 0], [n - 1, n - 1], [0, n - 1]];
    context.strokeStyle = ink;
    context.lineWidth = 1;
    context.beginPath();
    base.forEach(([i, j], k) => {
      const [px, py] = project(i, j, low);
      if (k === 0) context.moveTo(px, py);
      else context.lineTo(px, py);
    });
    context.closePath();
    context.stroke();
    const stride = Math.max(1, Math.floor((n - 1) / 40));
    const quads: { back: number; points: (readonly [number, number, number])[]; fill: string }[] = [];
    for (let i = 0; i + stride < n; i += stride)
      for (let j = 0; j + stride < n; j += stride) {
        const z = (a: number, b: number) => height[a * n + b]!;
        const slope = ((z(i + stride, j) - z(i, j)) * 0.8 + (z(i, j + stride) - z(i, j)) * 0.6) * ((n - 1) / stride) / (high - low || 1);
        const light = 0.5 + 0.5 * Math.tanh(-slope * 0.5);
        const [x0, x1, y0, y1] = [x[i]!, x[i + stride]!, x[j]!, x[j + stride]!];
        for (const polygon of split([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])) {
          // Between its corners a cell's height is mixed from them.
          const points = polygon.map(([a, b]) => {
            const [u, v] = [(a - x0) / (x1 - x0), (b - y0) / (y1 - y0)];
            return project(i + u * stride, j + v * stride, (1 - u) * ((1 - v) * z(i, j) + v * z(i, j + stride)) + u * ((1 - v) * z(i + stride, j) + v * z(i + stride, j + stride)));
          });
          const middle = (k: 0 | 1) => polygon.reduce((sum, at) => sum + at[k], 0) / polygon.length;
          quads.push({ back: points.reduce((sum, at) => sum + at[2], 0) / points.length, points, fill: color(middle(0), middle(1), light) });
        }
      }
    quads.sort((a, b) => b.back - a.back);
    context.lineWidth = 0.6;
    for (const quad of quads) {
      context.beginPath();
      quad.points.forEach(([px, py], k) => (k === 0 ? context.moveTo(px, py) : context.lineTo(px, py)));
      context.closePath();
      context.fillStyle = quad.fill;
      context.strokeStyle = quad.fill;
      context.fill();
      context.stroke();
    }
    if (line !== undefined) {
      context.lineJoin = "round";
      for (const [stroke, wide] of [[theme() === "dark" ? "#14181f" : "#fdfcfa", 5], [theme() === "dark" ? "#ff8fd0" : "#a3006b", 2.6]] as const) {
        context.strokeStyle = stroke;
        context.lineWidth = wide;
        context.beginPath();
        for (let i = 0; i < n; ++i) {
          const [px, py] = project(i, line, height[i * n + line]!);
          if (i === 0) context.moveTo(px, py);
          else context.lineTo(px, py);
        }
        context.stroke();
      }
    }
    // The heights, at the corner that lies farthest left.
    const corner = base.reduce((left, next) => (project(...next, low)[0] < project(...left, low)[0] ? next : left));
    const ends = [project(...corner, low), project(...corner, high)] as const;
    const heights = axis({ label: "", domain: [low, high] }, ends[0][1], ends[1][1], 40);
    context.strokeStyle = ink;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(ends[0][0], ends[0][1]);
    context.lineTo(ends[1][0], ends[1][1]);
    for (const tick of heights.ticks) {
      context.moveTo(ends[0][0] - 4, heights(tick));
      context.lineTo(ends[0][0], heights(tick));
    }
    context.stroke();
    // A rim of the page's color, so that the names can be read on the surface.
    context.strokeStyle = theme() === "dark" ? "#14181f" : "#fdfcfa";
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.fillStyle = theme() === "dark" ? "#d8dbe0" : "#33373d";
    const names: [string, number, number][] = [["x[0]", (n - 1) / 2, -0.2 * n], ["x[1]", 1.22 * n, (n - 1) / 2]];
    for (const [input, i, j] of names) {
      const [px, py] = project(i, j, low);
      const at = [Math.min(Math.max(px, 16), size - 16), Math.min(py, tall - 8)] as const;
      context.strokeText(input, ...at);
      context.fillText(input, ...at);
    }
    context.textAlign = "right";
    context.font = "11px system-ui, sans-serif";
    const written: [string, number][] = [...heights.ticks.map((tick): [string, number] => [heights.write(tick), heights(tick)]), [name, ends[1][1] - 14]];
    for (const [text, y] of written) {
      const right = Math.max(ends[0][0] - 7, context.measureText(text).width + 1);
      context.strokeText(text, right, y);
      context.fillText(text, right, y);
    }
  }, [x, height, color, split, size, low, high, turn, line, shade, name]);

  const nearest = (event: PointerEvent): readonly [number, number] => {
    const box = canvas.current!.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best: readonly [number, number] = [0, 0];
    let least = Infinity;
    for (let i = 0; i < n; i += 2)
      for (let j = 0; j < n; j += 2) {
        const [qx, qy, back] = project(i, j, height[i * n + j]!);
        const distance = (qx - px) ** 2 + (qy - py) ** 2 + back * 4;  // of two points at one place, the nearer to the eye
        if (distance < least) [best, least] = [[i, j], distance];
      }
    return best;
  };
  const show = (place: readonly [number, number], aloud: boolean) => {
    at.current = place;
    const box = canvas.current!.getBoundingClientRect();
    const [px, py] = project(place[0], place[1], height[place[0] * n + place[1]]!);
    showTip(describe(place[0], place[1]), box.left + px, box.top + py, aloud);
  };
  const keys = (event: TargetedKeyboardEvent<HTMLCanvasElement>) => {
    const [i, j] = at.current ?? [Math.floor(n / 2), Math.floor(n / 2)];
    const hop = Math.max(1, Math.floor(n / 20));
    const moves: Record<string, readonly [number, number]> = { ArrowRight: [i + hop, j], ArrowLeft: [i - hop, j], ArrowUp: [i, j + hop], ArrowDown: [i, j - hop] };
    const to = moves[event.key];
    if (to === undefined) {
      if (event.key === "Escape") hideTip();
      return;
    }
    event.preventDefault();
    show([Math.min(Math.max(to[0], 0), n - 1), Math.min(Math.max(to[1], 0), n - 1)], true);
  };
  return (
    <canvas
      ref={canvas}
      class="surface"
      style={{ width: px(size), height: px(tall) }}
      role="application"
      aria-roledescription="surface"
      aria-label={`${label} Arrow keys move over it.`}
      tabIndex={0}
      onPointerDown={(event) => {
        drag.current = event.clientX;
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerUp={() => (drag.current = null)}
      onPointerMove={(event) => {
        if (drag.current === null) return show(nearest(event), false);
        hideTip();
        onTurn(turn + (event.clientX - drag.current) * 0.012);
        drag.current = event.clientX;
      }}
      onPointerLeave={hideTip}
      onBlur={hideTip}
      onKeyDown={keys}
    />
  );
}
