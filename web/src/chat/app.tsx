// The whole page: conversations at the side, the one that is read in the middle, the glass beside it.

import { useEffect, useRef } from "preact/hooks";
import { ThemeButton } from "../frame";
import { begin, closeGlass, connect, look, again as answerAgain, stop } from "./actions";
import { Composer } from "./composer";
import { Glass } from "./glass/glass";
import { KeyForm } from "./key";
import { useWide } from "./media";
import { Shortcuts } from "./shortcuts";
import { Side } from "./side";
import { conversation, looked, set, state, useApp } from "./state";
import { Transcript } from "./transcript";
import { pathTo } from "./tree";

export function App() {
  const app = useApp();
  const wide = useWide();
  const drawer = useRef<HTMLDialogElement>(null);
  const help = useRef<HTMLDialogElement>(null);
  const composer = useRef<HTMLTextAreaElement>(null);
  const one = app.all.find((other) => other.id === app.current)!;
  const glass = looked(app);
  useKeys(() => help.current?.showModal(), () => composer.current?.focus());
  useEffect(() => {
    if (wide) drawer.current?.close();
  }, [wide]);
  // What asked for an answer may be gone with the message that it belonged to: the keyboard then goes on from the conversation.
  useEffect(() => {
    if (app.running !== null && document.activeElement === document.body) document.querySelector<HTMLElement>(".transcript")?.focus({ preventScroll: true });
  }, [app.running]);
  return (
    <div class={`app${wide ? " wide" : ""}${glass === null ? "" : " looking"}`}>
      <a class="skip" href="#text">To the message</a>
      <header class="bar">
        {!wide && <button type="button" aria-haspopup="dialog" onClick={() => drawer.current?.showModal()}>Menu</button>}
        <h1><bdi>{app.served === null ? "vitrine" : app.served.model}</bdi></h1>
        {wide && <button type="button" aria-haspopup="dialog" onClick={() => help.current?.showModal()}>Keys</button>}
        <ThemeButton />
      </header>
      {wide
        ? <nav class="side" aria-label="Conversations and settings"><Side one={one} onChosen={() => composer.current?.focus()} /></nav>
        : (
          <dialog ref={drawer} class="drawer" aria-label="Conversations and settings" onClick={(event) => event.target === event.currentTarget && event.currentTarget.close()}>
            <div class="side">
              <button type="button" class="close" onClick={() => drawer.current?.close()}>Close</button>
              <Side one={one} onChosen={() => drawer.current?.close()} />
              <button type="button" aria-haspopup="dialog" onClick={() => help.current?.showModal()}>Keys</button>
            </div>
          </dialog>
        )}
      <main id="main">
        {app.trouble !== null && (app.trouble.kind === "key"
          ? <KeyForm problem={app.trouble.message} />
          : <div class="trouble" role="alert"><p>{app.trouble.message}</p><button type="button" onClick={() => void connect()}>Try again</button></div>)}
        <Transcript one={one} />
        <Composer one={one} field={composer} />
      </main>
      {glass !== null && <Glass key={glass.message.id} one={one} message={glass.message} token={glass.token} />}
      <dialog ref={help} class="help" aria-labelledby="help-title"><Shortcuts onClose={() => help.current?.close()} /></dialog>
      <Notice text={app.notice} />
      <div class="unseen" role="status">{app.said}</div>
    </div>
  );
}

function Notice({ text }: { text: string }) {
  useEffect(() => {
    const timer = setTimeout(() => set({ notice: "" }), 8000);
    return () => clearTimeout(timer);
  }, [text]);
  return <div class={text === "" ? "notice" : "notice shown"} role="status">{text}</div>;
}

/** The keys that work everywhere on the page; shortcuts.tsx lists them. */
function useKeys(help: () => void, write: () => void): void {
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if (document.querySelector("dialog[open]") !== null) return;
      if (event.key === "Escape") {
        if (state().running !== null) stop();
        else if (state().glass !== null) closeGlass();
        return;
      }
      if (!event.altKey || event.ctrlKey || event.metaKey) return;
      const last = pathTo(conversation(), conversation().leaf).findLast((message) => message.role === "assistant");
      const act: Record<string, (() => void) | undefined> = {
        KeyN: () => {
          begin();
          write();
        },
        KeyM: write,
        KeyR: last && (() => answerAgain(last)),
        KeyL: last && last.tokens.length > 0 ? () => look(last, 0) : undefined,
        KeyK: help,
      };
      const found = act[event.code];
      if (found === undefined) return;
      event.preventDefault();
      found();
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
}
