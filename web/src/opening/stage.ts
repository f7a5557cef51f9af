// The opening's drawing on a canvas. What does not move (arcs, streams, words along them) is drawn once and kept; a frame copies as
// much of it as the run has come to and writes the words at its front, so that it costs the same however many arcs there are.

import { percent } from "../format";
import { squares, place, type Place, type View } from "./place";
import type { Run } from "./run";

export interface Scene {
  run: Run;
  /** Of the changed model; null where nothing is changed. */
  changed: Run | null;
  /** Names of the heads that are switched off: "1.3". */
  off: ReadonlySet<string>;
  names: readonly string[];
  width: number;
  view: View;
  /** The row whose prediction is shown. */
  row: number;
  layer: number | null;
  head: number | null;
  query: number | null;
  key: number | null;
  /** Whether what comes after the front is shown faintly. */
  ahead: boolean;
}

/** Arcs of smaller weights are left out. */
const faintest = 0.05;
const frameTime = 380;

interface Colors {
  paper: string;
  ink: string;
  quiet: string;
  rule: string;
  attention: string;
  mlp: string;
}

const reading = '"Noto Sans Mono", ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

export class Stage {
  private readonly kept = document.createElement("canvas");
  private scene: Scene | null = null;
  private view: View = [0, 1];
  private place: Place | null = null;
  private frame = 0;
  private moving = 0;
  /** −1 … 0: the tokens come in; then the depth of the front. */
  front = Number.POSITIVE_INFINITY;

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** Draws this scene from now on; `slide`: the view moves there. */
  show(scene: Scene, slide: boolean): void {
    const before = this.scene === null ? scene.view : this.view;
    this.scene = scene;
    cancelAnimationFrame(this.moving);
    if (!slide || (before[0] === scene.view[0] && before[1] === scene.view[1])) {
      this.view = scene.view;
      this.keep();
      this.draw();
      return;
    }
    let from = 0;
    const step = (now: number) => {
      if (from === 0) from = now;
      const share = Math.min(1, (now - from) / frameTime);
      const eased = 1 - (1 - share) ** 3;
      this.view = [before[0] + (scene.view[0] - before[0]) * eased, before[1] + (scene.view[1] - before[1]) * eased];
      this.keep();
      this.draw();
      if (share < 1) this.moving = requestAnimationFrame(step);
    };
    this.moving = requestAnimationFrame(step);
  }

  end(): void {
    cancelAnimationFrame(this.moving);
    cancelAnimationFrame(this.frame);
  }

  /** Where things stand now. */
  at(): Place | null {
    return this.place;
  }

  private colors(): Colors {
    const style = getComputedStyle(document.documentElement);
    const read = (name: string) => style.getPropertyValue(name).trim();
    return { paper: read("--paper"), ink: read("--ink"), quiet: read("--quiet"), rule: read("--rule"), attention: read("--attention"), mlp: read("--mlp") };
  }

  private size(canvas: HTMLCanvasElement, p: Place): CanvasRenderingContext2D {
    const scale = Math.min(2, window.devicePixelRatio || 1);
    const [width, height] = [Math.round(p.width * scale), Math.round(p.height * scale)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const context = canvas.getContext("2d")!;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    return context;
  }

  /** Draws what does not move. */
  private keep(): void {
    const scene = this.scene!;
    const p = place(scene.width, scene.run, this.view);
    this.place = p;
    const g = this.size(this.kept, p);
    const colors = this.colors();
    g.clearRect(0, 0, p.width, p.height);
    g.save();
    g.beginPath();
    g.rect(p.left - 1, 0, p.right - p.left + 2, p.height);
    g.clip();
    this.streams(g, p, colors);
    this.arcs(g, p, colors);
    this.words(g, p, colors);
    g.restore();
  }

  /** One line a token, as thick as its residual stream is long: filled; before a change: in outline. */
  private streams(g: CanvasRenderingContext2D, p: Place, colors: Colors): void {
    const { run, changed, row: current, query } = this.scene!;
    let longest = 0;
    for (let row = 0; row < run.rows; ++row)
      for (let depth = 0; depth <= run.layers; ++depth) longest = Math.max(longest, run.length(row, depth) ?? 0, changed?.length(row, depth) ?? 0);
    const half = (of: Run, row: number, depth: number) => {
      const length = of.length(row, depth);
      return length === null || longest === 0 ? p.row * 0.12 : Math.max(0.6, (p.row * 0.36 * length) / longest);
    };
    const outline = (of: Run, row: number) => {
      g.beginPath();
      for (let depth = 0; depth <= run.layers; ++depth) g.lineTo(p.x(depth), p.y(row) - half(of, row, depth));
      for (let depth = run.layers; depth >= 0; --depth) g.lineTo(p.x(depth), p.y(row) + half(of, row, depth));
      g.closePath();
    };
    for (let row = 0; row < run.rows; ++row) {
      const chosen = row === (query ?? current);
      outline(changed ?? run, row);
      g.fillStyle = chosen ? colors.attention : colors.quiet;
      g.globalAlpha = chosen ? 0.42 : row > current ? 0.1 : 0.22;
      g.fill();
      if (changed === null) continue;
      outline(run, row);
      g.globalAlpha = row > current ? 0.3 : 0.9;
      g.strokeStyle = colors.ink;
      g.lineWidth = 1;
      g.stroke();
    }
    g.globalAlpha = 1;
  }

  /** Attention, as arcs from the token looked at to the token that looks, within their layer. */
  private arcs(g: CanvasRenderingContext2D, p: Place, colors: Colors): void {
    const { run, changed, off, row: current, layer, head, query, key } = this.scene!;
    if (!run.attention) return;
    const of = changed ?? run;
    const thick = Math.min(p.row * 0.22, p.column * 0.1, 6);
    // Words stand on the first half of a column.
    const start = hasWords(p) ? 0.46 : 0.08;
    const spots = new Set<number>();
    for (let at = 0; at < run.layers; ++at) {
      if (at + 1 < this.view[0] || at > this.view[1]) continue;
      const one = layer === at ? head : null;
      if (one !== null && off.has(`${at}.${one}`)) continue;
      const gone = one === null ? Array.from({ length: run.heads }, (_, h) => h).filter((h) => off.has(`${at}.${h}`)) : [];
      for (let target = 1; target < run.rows; ++target) {
        if (query !== null && at === layer && target !== query) continue;
        for (let source = 0; source < target; ++source) {
          if (key !== null && at === layer && source !== key) continue;
          const weight = of.weight(at, one, target, source) - gone.reduce((sum, h) => sum + of.weight(at, h, target, source) / run.heads, 0);
          if (weight < (query !== null && at === layer ? 0.005 : faintest)) continue;
          const [x0, x1] = [p.x(at + start), p.x(at + 0.97)];
          g.globalAlpha = Math.min(0.92, 0.12 + weight) * (target > current && query === null ? 0.3 : 1);
          g.strokeStyle = colors.attention;
          g.lineWidth = 0.5 + thick * weight;
          g.beginPath();
          g.moveTo(x0, p.y(source));
          g.bezierCurveTo(x0 + (x1 - x0) * 0.6, p.y(source), x1 - (x1 - x0) * 0.6, p.y(target), x1, p.y(target));
          g.stroke();
          if (weight > 0.2) spots.add(at * run.rows + source);
        }
      }
    }
    if (query !== null && layer !== null && head !== null) this.shares(g, p, colors, of, p.x(layer + start));
    g.globalAlpha = 0.9;
    g.fillStyle = colors.attention;
    for (const spot of spots) {
      g.beginPath();
      g.arc(p.x(Math.floor(spot / run.rows) + start), p.y(spot % run.rows), 1.8, 0, 2 * Math.PI);
      g.fill();
    }
    g.globalAlpha = 1;
  }

  /** The weights of the row that is opened, at the tokens it looks at. */
  private shares(g: CanvasRenderingContext2D, p: Place, colors: Colors, of: Run, x: number): void {
    const { layer, head, query, key, off } = this.scene!;
    if (off.has(`${layer}.${head}`)) return;
    g.font = `${Math.min(12, p.row - 4)}px system-ui, "Noto Sans", sans-serif`;
    g.textAlign = "right";
    g.fillStyle = colors.ink;
    g.strokeStyle = colors.paper;
    g.lineWidth = 3;
    g.lineJoin = "round";
    for (let source = 0; source <= query!; ++source) {
      const weight = of.weight(layer!, head, query!, source);
      if (weight < 0.005 || (key !== null && source !== key)) continue;
      g.globalAlpha = 0.6 + 0.4 * weight;
      g.strokeText(percent(weight), x - 7, p.y(source) + 4);
      g.fillText(percent(weight), x - 7, p.y(source) + 4);
    }
  }

  /** What each token would say after each layer but the last, on its stream. */
  private words(g: CanvasRenderingContext2D, p: Place, colors: Colors): void {
    const { run, changed, row: current } = this.scene!;
    if (!hasWords(p)) return;
    const size = wordSize(p);
    g.font = `${size}px ${reading}`;
    g.textAlign = "left";
    for (let depth = 1; depth < run.layers; ++depth) {
      // Where one layer is in sight, what comes out of it stands at the right.
      if (depth < this.view[0] || depth > this.view[1] || depth - 1 === this.scene!.layer) continue;
      for (let row = 0; row < run.rows; ++row) {
        const [before, word] = [run.words(row, depth)[0], (changed ?? run).words(row, depth)[0]];
        if (word === undefined) continue;
        const differs = changed !== null && before !== undefined && before.id !== word.id;
        const text = fitted(g, word.name, p.column * (p.column < 70 ? 0.9 : 0.62));
        g.globalAlpha = (row > current ? 0.4 : 1) * (differs ? 1 : 0.55 + 0.45 * word.prob);
        g.lineWidth = 3;
        g.lineJoin = "round";
        g.strokeStyle = colors.paper;
        g.strokeText(text, p.x(depth) + 3, p.y(row) + size * 0.36);
        g.fillStyle = differs ? colors.mlp : colors.ink;
        g.fillText(text, p.x(depth) + 3, p.y(row) + size * 0.36);
      }
    }
    g.globalAlpha = 1;
  }

  /** One frame. */
  draw(): void {
    const [scene, p] = [this.scene, this.place];
    if (scene === null || p === null) return;
    const g = this.size(this.canvas, p);
    const colors = this.colors();
    const { run, changed, off } = scene;
    const front = Math.min(this.front, run.layers);
    g.clearRect(0, 0, p.width, p.height);
    const to = Math.max(p.left, Math.min(p.right + 1, p.x(Math.max(0, front))));
    const part = (from: number, until: number, alpha: number) => {
      if (until <= from) return;
      const scale = this.kept.width / p.width;
      g.globalAlpha = alpha;
      g.drawImage(this.kept, from * scale, 0, (until - from) * scale, this.kept.height, from, 0, until - from, p.height);
      g.globalAlpha = 1;
    };
    part(p.left - 1, to, 1);
    if (scene.ahead) part(to, p.right + 1, 0.16);
    this.columns(g, p, colors, front);
    for (const square of squares(p, run, this.view)) {
      const gone = off.has(`${square.layer}.${square.head}`);
      const chosen = scene.layer === square.layer && scene.head === square.head;
      g.globalAlpha = square.layer < front ? 1 : 0.35;
      g.strokeStyle = gone ? colors.quiet : colors.attention;
      g.lineWidth = chosen ? 2 : 1;
      if (!gone) {
        g.fillStyle = colors.attention;
        g.globalAlpha *= chosen ? 1 : 0.45;
        g.fillRect(square.x, square.y, square.side, square.side);
      } else {
        g.strokeRect(square.x + 0.5, square.y + 0.5, square.side - 1, square.side - 1);
        g.beginPath();
        g.moveTo(square.x, square.y + square.side);
        g.lineTo(square.x + square.side, square.y);
        g.stroke();
      }
      if (chosen) {
        g.globalAlpha = 1;
        g.strokeStyle = colors.ink;
        g.strokeRect(square.x - 1, square.y - 1, square.side + 2, square.side + 2);
      }
    }
    g.globalAlpha = 1;
    this.names(g, p, colors);
    this.ends(g, p, colors, front, changed);
  }

  private columns(g: CanvasRenderingContext2D, p: Place, colors: Colors, front: number): void {
    const { run, layer: open } = this.scene!;
    g.font = '11.5px system-ui, "Noto Sans", sans-serif';
    g.textAlign = "center";
    const every = Math.max(1, Math.ceil(26 / p.column));
    for (let layer = 0; layer < run.layers; ++layer) {
      const x = p.x(layer + 0.5);
      if (x < p.left || x > p.right || layer % every > 0) continue;
      g.fillStyle = layer === open ? colors.ink : colors.quiet;
      g.globalAlpha = layer < front ? 1 : 0.5;
      g.fillText(p.column > 56 ? `layer ${layer}` : String(layer), x, 12);
    }
    g.globalAlpha = 1;
  }

  /** The tokens at the left, one after the other at the beginning. */
  private names(g: CanvasRenderingContext2D, p: Place, colors: Colors): void {
    const { run, names, row: current, query, key } = this.scene!;
    const size = Math.min(13.5, p.row - 3);
    g.textAlign = "right";
    for (let row = 0; row < run.rows; ++row) {
      const come = Math.max(0, Math.min(1, (this.front + 1) * run.rows - row));
      const chosen = row === (query ?? current) || row === key;
      g.font = `${chosen ? "700 " : ""}${size}px ${reading}`;
      g.globalAlpha = come * (row > current && query === null ? 0.5 : 1);
      g.fillStyle = row === key ? colors.attention : colors.ink;
      g.fillText(fitted(g, names[row]!, p.left - 12), p.left - 8 - (1 - come) * 24, p.y(row) + size * 0.36);
    }
    g.globalAlpha = 1;
  }

  /** What each token would say at the front; at the end it stands at the right. */
  private ends(g: CanvasRenderingContext2D, p: Place, colors: Colors, front: number, changed: Run | null): void {
    const { run, row: current, layer } = this.scene!;
    if (front < 0) return;
    const depth = Math.min(Math.floor(front + 1e-6), layer === null ? run.layers : layer + 1);
    const ended = depth === (layer === null ? run.layers : layer + 1);
    const size = Math.min(13.5, p.row - 3);
    const x = Math.max(p.left, Math.min(p.right, p.x(front)));
    g.textAlign = "left";
    for (let row = 0; row < run.rows; ++row) {
      const [before, word] = [run.words(row, depth)[0], (changed ?? run).words(row, depth)[0]];
      if (depth > 0 && !ended) {
        g.globalAlpha = row > current ? 0.3 : 1;
        g.fillStyle = row === current ? colors.attention : colors.quiet;
        g.beginPath();
        g.arc(x, p.y(row), 2.4, 0, 2 * Math.PI);
        g.fill();
      }
      if (word === undefined || (depth === 0 && !ended)) continue;
      const differs = changed !== null && before !== undefined && before.id !== word.id;
      g.font = `${row === current || differs ? "700 " : ""}${size}px ${reading}`;
      g.globalAlpha = row > current ? 0.4 : row === current || differs ? 1 : 0.5 + 0.5 * word.prob;
      const text = fitted(g, word.name, p.width - p.right - 10);
      if (!ended) {
        g.lineWidth = 4;
        g.lineJoin = "round";
        g.strokeStyle = colors.paper;
        g.strokeText(text, x + 7, p.y(row) + size * 0.36);
      }
      g.fillStyle = differs ? colors.mlp : row === current ? colors.attention : colors.ink;
      g.fillText(text, x + 7, p.y(row) + size * 0.36);
    }
    g.globalAlpha = 1;
  }

  /** Lets the run go on from `from` until its end; `passed` is told each depth that it reaches. */
  play(from: number, passed: (depth: number, ended: boolean) => void): void {
    const layers = this.scene?.run.layers ?? 0;
    const pace = Math.max(0.8, layers / 7);  // layers a second
    this.front = from;
    let last = 0;
    let told = Math.floor(from);
    cancelAnimationFrame(this.frame);
    const step = (now: number) => {
      const seconds = last === 0 ? 0 : Math.min(0.1, (now - last) / 1000);
      last = now;
      this.front = Math.min(layers, this.front + seconds * (this.front < 0 ? 0.9 : pace));
      this.draw();
      const ended = this.front >= layers;
      if (Math.floor(this.front) > told || ended) passed(told = Math.floor(this.front), ended);
      if (!ended) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
  }
}

const wordSize = (p: Place) => Math.min(12.5, p.row - 9);

/** Whether there is room for a word on each line in each layer. */
function hasWords(p: Place): boolean {
  return wordSize(p) >= 10 && p.column >= 48;
}

/** The text, cut to a width. */
function fitted(g: CanvasRenderingContext2D, text: string, width: number): string {
  if (g.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && g.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
