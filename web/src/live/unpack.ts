// The bytes in an element of the page, a gzip file or the bytes themselves, as printable characters (src/app/picture/page/printable.h).

const digits = "!#$%'()*+,-./0123456789:;=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~";

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const valueOf = new Uint8Array(128);
  for (let i = 0; i < digits.length; ++i) valueOf[digits.charCodeAt(i)] = i;
  const pairs = text.length >> 1;
  const bytes = new Uint8Array((13 * pairs + 6 * (text.length & 1)) >> 3);
  let [bits, count, at] = [0, 0, 0];
  for (let i = 0; i < 2 * pairs; i += 2) {
    bits |= (valueOf[text.charCodeAt(i)]! + 91 * valueOf[text.charCodeAt(i + 1)]!) << count;
    count += 13;
    do {
      bytes[at++] = bits;
      bits >>>= 8;
      count -= 8;
    } while (count >= 8);
  }
  if (at < bytes.length) bytes[at] = bits | (valueOf[text.charCodeAt(2 * pairs)]! << count);
  return bytes;
}

export async function unpack(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = bytesOf(text.trim());
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}
