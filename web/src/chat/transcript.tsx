// The messages of a conversation from the first to the last shown.

import { useLayoutEffect, useRef } from "preact/hooks";
import { calm } from "../theme";
import { MessageView } from "./message";
import { useApp } from "./state";
import { pathTo, siblings, type Conversation } from "./tree";

export function Transcript({ one }: { one: Conversation }) {
  const { served, running, glass } = useApp();
  const area = useRef<HTMLDivElement>(null);
  const below = useRef(true);
  const path = pathTo(one, one.leaf);
  const last = path.at(-1);
  // Follows the answer while the reader is at its end.
  useLayoutEffect(() => {
    const element = area.current;
    if (element !== null && below.current) element.scrollTo({ top: element.scrollHeight, behavior: "instant" });
  }, [last?.text, one.id]);
  return (
    <div
      ref={area}
      class={`transcript ${one.mode}`}
      role="region"
      aria-label={one.mode === "chat" ? "Conversation" : "Text"}
      tabIndex={0}
      onScroll={(event) => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        below.current = scrollTop + clientHeight > scrollHeight - 40;
      }}
    >
      <div class={calm() ? "messages calm" : "messages"}>
        {path.length === 0 && served !== null && <Welcome chat={one.mode === "chat"} context={served.context} />}
        {path.map((message) => (
          <MessageView
            key={message.id}
            message={message}
            places={siblings(one, message)}
            mode={one.mode}
            busy={running !== null || served === null}
            running={running?.message === message.id}
            looked={glass?.message === message.id ? glass.token : null}
          />
        ))}
      </div>
    </div>
  );
}

function Welcome({ chat, context }: { chat: boolean; context: number | null }) {
  return (
    <div class="welcome">
      <p>{chat ? "Write a message. The answer comes token by token." : "This model continues texts: write the beginning of one."}</p>
      <p>Click any token of an answer to look inside the model at that step: what else it could have said, where its heads looked, what each layer predicted. Then change the model and compare.</p>
      {context !== null && <p class="remark">The model reads {context} tokens at most. Nothing you write leaves this server.</p>}
    </div>
  );
}
