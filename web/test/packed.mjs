// Bytes as a live page holds them (src/app/picture/page/printable.h), for tests that make or read one.

const digits = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i)).filter((letter) => !'"&<'.includes(letter));

/** @param {Uint8Array} bytes */
export function packed(bytes) {
  /** @type {string[]} */
  const text = [];
  let [bits, count] = [0, 0];
  const put = (/** @type {number} */ value) => text.push(digits[value] ?? "");
  for (const byte of bytes) {
    bits += byte * 2 ** count;
    count += 8;
    if (count < 13) continue;
    put((bits % 8192) % 91);
    put(Math.floor((bits % 8192) / 91));
    bits = Math.floor(bits / 8192);
    count -= 13;
  }
  if (count > 0) put(bits % 91);
  if (count > 6) put(Math.floor(bits / 91));
  return text.join("");
}

/** @param {string} text */
export function unpacked(text) {
  const valueOf = new Map(digits.map((letter, value) => [letter, value]));
  const value = (/** @type {number} */ at) => valueOf.get(text[at] ?? "") ?? NaN;
  const bytes = Buffer.alloc(Math.floor((13 * (text.length >> 1) + 6 * (text.length % 2)) / 8));
  let [bits, count, done] = [0, 0, 0];
  for (let at = 0; at < text.length; at += 2) {
    const whole = at + 1 < text.length;
    bits += (value(at) + (whole ? 91 * value(at + 1) : 0)) * 2 ** count;
    count += whole ? 13 : 6;
    for (; count >= 8; count -= 8) {
      bytes[done++] = bits % 256;
      bits = Math.floor(bits / 256);
    }
  }
  return bytes;
}
