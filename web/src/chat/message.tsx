// One message: its text by tokens, its siblings, and what can be done with it.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { css, inkOn } from "../color";
import { percent, piece } from "../format";
import { useTheme } from "../hooks";
import { hideTip, showTip } from "../tip";
import { again, edit, look, repeat, resume, showSibling } from "./actions";
import type { Asked } from "./ask";
import { fit } from "./composer";
import { blocks } from "./flow";
import { idsOf, promptIds, promptText } from "./prompt";
import { commandLine, commandOfText, Commands, quoted } from "./reproduce";
import { flags } from "./settings";
import { conversation, set, state } from "./state";
import { parts, probability } from "./tokens";
import { pathTo, type Message } from "./tree";
import { asTrouble } from "./trouble";

interface Props {
  message: Message;
  places: readonly Message[];
  mode: "chat" | "text";
  /** Nothing can be asked now: an answer is coming, or the server has not been found. */
  busy: boolean;
  /** This one is. */
  running: boolean;
  /** The token of it that is looked into. */
  looked: number | null;
}

export function MessageView({ message, places, mode, busy, running, looked }: Props) {
  const [editing, setEditing] = useState(false);
  const [asked, setAsked] = useState<Asked | null>(null);
  const mine = message.role === "user";
  const who = mode === "chat" ? (mine ? "You" : "Answer") : mine ? "Your text" : "Continuation";
  const at = places.findIndex((other) => other.id === message.id);
  return (
    <article class={`message ${message.role}${running ? " running" : ""}`} aria-label={who} aria-busy={running}>
      <h2>{who}</h2>
      {editing
        ? <Editor message={message} onDone={() => setEditing(false)} />
        : <Text message={message} looked={looked} />}
      {running && message.text === "" && <p class="waiting">The model is reading …</p>}
      {message.end === "failed" && (
        <div class="trouble" role="alert">
          <p>{message.error}</p>
          {!busy && <button type="button" onClick={() => again(message)}>Try again</button>}
        </div>
      )}
      {!running && !editing && (
        <div class="acts" role="group" aria-label={`${who}: actions`}>
          {places.length > 1 && (
            <span class="places">
              <button type="button" class="plain" aria-label="The one before" disabled={busy || at === 0} onClick={() => showSibling(places[at - 1]!)}>‹</button>
              <span>{at + 1} of {places.length}</span>
              <button type="button" class="plain" aria-label="The next one" disabled={busy || at === places.length - 1} onClick={() => showSibling(places[at + 1]!)}>›</button>
            </span>
          )}
          {!mine && message.tokens.length > 0 && <button type="button" class="plain" onClick={() => look(message, message.given)}>Look inside</button>}
          {!mine && <button type="button" class="plain" disabled={busy} onClick={() => again(message)}>Answer again</button>}
          {!mine && message.end !== "stop" && message.tokens.length > 0 && <button type="button" class="plain" disabled={busy} onClick={() => resume(message)}>Go on</button>}
          <button type="button" class="plain" disabled={busy} onClick={() => setEditing(true)}>Edit</button>
          <CopyText text={message.text} />
          {!mine && (
            <button
              type="button"
              class="plain"
              aria-expanded={asked !== null}
              onClick={() => (asked === null ? void repeat(message).then(setAsked, (error: unknown) => set({ notice: asTrouble(error)?.message ?? "" })) : setAsked(null))}
            >Reproduce</button>
          )}
          {!mine && <Ending message={message} />}
        </div>
      )}
      {asked !== null && !running && <div class="again"><Commands what="this answer" request={asked} command={() => generate(message)} /></div>}
    </article>
  );
}

/** With words where they say it all; else with the ids that the model read. */
async function generate({ parent, tokens, given, sampling }: Message): Promise<string> {
  const one = conversation();
  const served = state().served;
  const before = pathTo(one, parent);
  const text = promptText(before);
  if (given === 0 && text !== "-") {
    if (one.mode === "text") return commandOfText("generate", text, flags(sampling), served);
    if (before.length === 1) return commandOfText("chat", text, `${flags(sampling)}${one.system.trim() === "" ? "" : ` --system ${quoted(one.system)}`}`, served);
  }
  return commandLine("generate", [...(await promptIds(one, before)), ...(await idsOf(tokens.slice(0, given)))], flags(sampling), served);
}

function Ending({ message: { end, tokens, given } }: { message: Message }) {
  const why = { running: "", stop: "", length: ", cut off at the limit", stopped: ", stopped", failed: "" }[end];
  if (tokens.length === 0 && why === "") return null;
  return <span class="ending">{tokens.length - given} tokens{why}</span>;
}

/** Where the clipboard is refused, as on a page without TLS from another machine, the text is selected instead. */
function CopyText({ text }: { text: string }) {
  const [done, set] = useState("");
  const copy = async (button: HTMLElement) => {
    try {
      await navigator.clipboard.writeText(text);
      set("Copied");
    } catch {
      const shown = button.closest(".message")?.querySelector(".text");
      if (shown) window.getSelection()?.selectAllChildren(shown);
      set("Selected: press Ctrl+C");
    }
    setTimeout(() => set(""), 2000);
  };
  return <button type="button" class="plain" onClick={(event) => void copy(event.currentTarget)}>{done === "" ? "Copy" : done}</button>;
}

/** Text whose tokens can be pointed at; while one is looked into, all are shaded by their probability. */
function Text({ message, looked }: { message: Message; looked: number | null }) {
  const theme = useTheme();
  const { text, tokens } = message;
  const shaded = looked !== null;
  const body = useMemo(() => {
    const styles = tokens.map((token, i) => {
      // The same color means the same probability as in the logit lens.
      const share = probability(token.logprob);
      return shaded && i >= message.given ? { background: css("sequential", share, 1), color: inkOn("sequential", share, 1) } : {};
    });
    return blocks(text, parts(text, tokens)).map(({ code, pieces }, block) => {
      const laid = pieces.map((one, i) => (one.token === null ? one.text : <span key={i} data-token={one.token} style={styles[one.token]!}>{one.text}</span>));
      return code ? <code key={block} class="fenced" tabIndex={0}>{laid}</code> : laid;
    });
  }, [text, tokens, shaded, theme]);
  const area = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const chosen = area.current?.querySelector(`[data-token="${looked}"]`) ?? null;
    chosen?.classList.add("looked");
    chosen?.scrollIntoView({ block: "nearest", behavior: "instant" });  // the glass takes room from the text on a phone
    return () => chosen?.classList.remove("looked");
  }, [looked, body]);
  const under = (event: MouseEvent): [number, Element] | null => {
    const element = (event.target as Element).closest("[data-token]");
    return element === null ? null : [Number(element.getAttribute("data-token")), element];
  };
  return (
    <div
      ref={area}
      class="text"
      dir="auto"
      onClick={(event) => {
        const found = under(event);
        // Not at the end of a selection with the pointer.
        if (found !== null && window.getSelection()?.isCollapsed !== false) look(message, found[0]);
      }}
      onPointerOver={(event) => {
        const found = under(event);
        const token = found === null ? undefined : tokens[found[0]];
        if (found === null || token === undefined || event.pointerType === "touch") return hideTip();
        const box = found[1].getClientRects()[0]!;
        showTip(`${piece(token.text)}\n${percent(probability(token.logprob))}`, box.left, box.top);
      }}
      onPointerLeave={hideTip}
    >{body}</div>
  );
}

function Editor({ message, onDone }: { message: Message; onDone: () => void }) {
  const [text, set] = useState(message.text);
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => fit(field.current), [text]);
  useLayoutEffect(() => field.current?.focus(), []);
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        onDone();
        edit(message, text);
      }}
    >
      <textarea
        ref={field}
        aria-label="Edited text"
        dir="auto"
        value={text}
        onInput={(event) => set(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          onDone();
        }}
      />
      <div class="row">
        <button type="submit" class="strong">{message.role === "user" ? "Send" : "Use"}</button>
        <button type="button" onClick={onDone}>Cancel</button>
      </div>
    </form>
  );
}
