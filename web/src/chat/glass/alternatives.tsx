// What else the model could have said, and the way to let it.

import { css } from "../../color";
import { percent, piece } from "../../format";
import { useTheme } from "../../hooks";
import { branch } from "../actions";
import { alternatives } from "../ask";
import { commandLine, Reproduce } from "../reproduce";
import { useApp } from "../state";
import { probability, sameToken, type Alternative } from "../tokens";
import type { Message } from "../tree";
import type { Step, Told } from "./step";
import { Waiting } from "./waiting";

export function Alternatives({ message, at, step }: { message: Message; at: number; step: Told<Step> }) {
  useTheme();
  const { running, served } = useApp();
  const token = message.tokens[at]!;
  const same = (one: Alternative) => sameToken(one, token);
  const all: readonly Alternative[] = token.top.some(same) || token.top.length === 0 ? token.top : [...token.top, token];
  if (all.length === 0) return <p class="remark">The probabilities of this answer were not kept.</p>;
  const rest = 1 - all.reduce((sum, one) => sum + probability(one.logprob), 0);
  return (
    <>
      <p class="remark">The most likely tokens here. Choose one: the answer goes on from it, and this one stays beside it.</p>
      <ol class="alternatives">
        {all.map((one, i) => {
          const share = probability(one.logprob);
          return (
            <li key={i}>
              <button type="button" disabled={running !== null || same(one)} onClick={() => branch(message, at, one)}>
                <bdi>{piece(one.text)}</bdi>
                <span class="share" aria-hidden="true"><i style={{ width: `${Math.max(1, 100 * share)}%`, background: css("sequential", 0.45 + 0.55 * share, 1) }} /></span>
                <b>{percent(share)}<span class="unseen">{same(one) ? ", chosen" : ", go on from it"}</span></b>
              </button>
            </li>
          );
        })}
      </ol>
      {rest > 1e-4 && <p class="remark">All other tokens together: {percent(rest)}.</p>}
      {step.value === null
        ? step.trouble !== null && <Waiting trouble={step.trouble} />
        : (
          <Reproduce
            what="these alternatives"
            request={{ path: "v1/completions", body: { model: served?.model ?? "", prompt: step.value.ids, max_tokens: 1, temperature: 0, logprobs: alternatives } }}
            command={commandLine("predict", step.value.ids, `--top ${alternatives}`, served)}
          />
        )}
    </>
  );
}
