// A vocabulary that grows pair by pair: the prompt as it is cut by the pairs known so far, and the curve of the passage.

import { useMemo, useState } from "preact/hooks";
import { Charts } from "../charts";
import { Slider } from "../controls";
import type { VocabularyGrowth } from "../data";
import { visible } from "../document";
import { count, number, plural } from "../format";

export function Vocabulary({ picture: p }: { picture: VocabularyGrowth }) {
  const last = p.steps.length - 1;
  const [at, set] = useState(last);
  const whole = useMemo(() => ({ ...p, charts: p.charts ?? [] }), [p]);
  const now = p.steps[at]!;
  const says = `${plural(now.known, "pair")} known; the last one joined ${visible(now.left)} and ${visible(now.right)} to ${visible(now.piece)}, ${plural(now.times, "time")} in the passage; ${plural(now.tokens, "token")}, ${number(now.tokensPerByte)} for each byte`;
  return (
    <>
      <Slider label="Vocabulary" min={0} max={last} value={at} onChange={set} says={says} />
      {now.pieces.length > 0 && (
        <div class="split chosen grown" role="group" aria-label={`The prompt in ${plural(now.pieces.length, "piece")} with ${count(now.known)} pairs known`}>
          <div class="split-pieces">{now.pieces.map((text, i) => <bdi key={i}>{visible(text)}</bdi>)}</div>
        </div>
      )}
      <Charts picture={whole} />
    </>
  );
}
