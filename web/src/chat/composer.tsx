// Where the reader writes.

import type { RefObject } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { send, stop } from "./actions";
import { useApp } from "./state";
import type { Conversation } from "./tree";

export function Composer({ one, field }: { one: Conversation; field: RefObject<HTMLTextAreaElement | null> }) {
  const { running, served } = useApp();
  const [text, set] = useState("");
  useLayoutEffect(() => fit(field.current), [text]);
  const continues = one.mode === "text";
  const nothing = text.trim() === "" && !(continues && one.leaf !== null);
  const go = () => {
    if (nothing || running !== null || served === null) return;
    send(text);
    set("");
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
    >
      <label class="unseen" for="text">{continues ? "Text to continue" : "Message"}</label>
      <textarea
        id="text"
        ref={field}
        rows={1}
        value={text}
        placeholder={continues ? (one.leaf === null ? "The beginning of a text" : "More of the text, or nothing to let it go on") : "Message"}
        dir="auto"
        enterkeyhint="send"
        onInput={(event) => set(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          go();
        }}
      />
      {running !== null
        ? <button type="button" class="strong" onClick={stop}>Stop</button>
        : <button type="submit" class="strong" disabled={nothing || served === null}>{continues ? "Continue" : "Send"}</button>}
    </form>
  );
}

/** As high as its text, up to what the style sheet allows. */
export function fit(field: HTMLTextAreaElement | null): void {
  if (field === null) return;
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}
