// Whether two documents of pictures hold the same numbers.

import assert from "node:assert/strict";

/** Of what is compared: absolute below 1, else relative. */
const close = 1e-4;

/** @param {number} a @param {number} b @param {number} [step] what numbers are rounded to */
const near = (a, b, step = 0) => Math.abs(a - b) <= close * Math.max(1, Math.abs(b)) + step;

/** The numbers of a packed array. @param {{base64: string, type: string, scale: number, offset: number}} packed */
function unpacked({ base64, type, scale, offset }) {
  const bytes = Uint8Array.from(Buffer.from(base64, "base64")).buffer;
  if (type === "f32") return new Float32Array(bytes);
  return Float64Array.from(type === "u8" ? new Uint8Array(bytes) : new Uint16Array(bytes), (value) => offset + scale * value);
}

/** Whether the entry of a list, most likely first, has a neighbor of the same probability: either may come first. @param {readonly {prob: number}[]} list @param {number} rank */
export const levelAt = (list, rank) => [rank - 1, rank + 1].some((other) => list[other] !== undefined && Math.abs((list[other]?.prob ?? 0) - (list[rank]?.prob ?? 0)) <= 2 * close * (list[rank]?.prob ?? 0));

/** The same tokens with the same probabilities; the last may have changed places with one behind it. @param {readonly {token: number, prob: number}[]} mine @param {readonly {token: number, prob: number}[]} theirs @param {string} what */
export function sameTops(mine, theirs, what) {
  assert.equal(mine.length, theirs.length, what);
  mine.forEach(({ token, prob }, rank) => {
    const other = theirs[rank];
    assert.ok(other !== undefined && near(prob, other.prob), `${what}, rank ${rank + 1}: ${prob} on the page, ${other?.prob} in the program`);
    assert.ok(token === other.token || levelAt(theirs, rank), `${what}, rank ${rank + 1}: token ${token} on the page, ${other.token} in the program`);
  });
}

/**
 * Every number of `theirs` is in the same place of `mine`. Returns how many there are.
 * @param {any} mine @param {any} theirs @param {string} what
 * @returns {number}
 */
export function sameNumbers(mine, theirs, what) {
  // The stream without norms grows until f32 ends, which other sums reach a step earlier.
  if ([mine, theirs].every((one) => one === null || one > 1e20)) return 0;
  if (typeof theirs === "number") {
    assert.ok(typeof mine === "number" && near(mine, theirs), `${what}: ${mine} on the page, ${theirs} in the program`);
    return 1;
  }
  if (typeof theirs === "string" || typeof theirs === "boolean") {
    assert.equal(typeof mine, typeof theirs, what);
    return 0;
  }
  if (theirs === null || theirs === undefined) {
    assert.ok(mine === theirs, `${what}: ${JSON.stringify(mine)} on the page, ${theirs} in the program`);
    return 0;
  }
  assert.ok(typeof mine === "object" && mine !== null, `${what}: ${mine} on the page`);
  assert.deepEqual(Object.keys(mine), Object.keys(theirs), what);
  if ("base64" in theirs) {
    const [one, other] = [unpacked(mine), unpacked(theirs)];
    assert.equal(one.length, other.length, what);
    const step = theirs.type === "f32" ? 0 : Math.abs(theirs.scale);
    other.forEach((value, i) => assert.ok(near(one[i] ?? NaN, value, step), `${what}, number ${i}: ${one[i]} on the page, ${value} in the program`));
    return one.length;
  }
  return Object.keys(theirs).reduce((sum, key) => sum + sameNumbers(mine[key], theirs[key], `${what}.${key}`), 0);
}

/** All numbers in it, sorted. @param {any} value @returns {number[]} */
export function numbersIn(value) {
  /** @type {number[]} */
  const found = [];
  const gather = (/** @type {any} */ one) => {
    if (typeof one === "number") found.push(one);
    else if (typeof one === "object" && one !== null) {
      if ("base64" in one) unpacked(one).forEach((number) => found.push(number));
      else Object.values(one).forEach(gather);
    }
  };
  gather(value);
  return found.sort((a, b) => a - b);
}

/** Whether a number is among sorted ones, as nearly as `digits` significant digits say it. @param {readonly number[]} sorted @param {number} value @param {number} digits */
export function among(sorted, value, digits) {
  const step = close * Math.max(1, Math.abs(value)) + Math.abs(value) * 10 ** (1 - digits);
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value - step) low = middle + 1;
    else high = middle;
  }
  return (sorted[low] ?? Infinity) <= value + step;
}
