// Keeps the state of the page in its address, and the page in the state that its address asks for when it is opened.

import { useEffect, useRef } from "preact/hooks";
import { vitrine } from "../document";
import { change, setPrompt } from "../live/actions";
import { byIds, state, useLive } from "../live/state";
import { readAddress, writeAddress } from "./address";
import { look, setLook, useLook } from "./look";

function here(): string {
  return location.hash.replace(/^#/, "");
}

/** What the page was made with: a prompt like this needs no place in the address. */
const made = { prompt: vitrine.prompt?.text ?? vitrine.prompt?.ids?.join(", ") ?? "" };

export function AddressKeeper() {
  const prompt = useLive((now) => now.prompt);
  const off = useLive((now) => now.off);
  const looked = useLook();
  const read = useRef(false);
  /** The anchor that a link of the page has asked for last. */
  const anchor = useRef<string | null>(null);

  const apply = () => {
    if (!here().includes("=")) {
      anchor.current = here() === "" ? null : here();
      return;
    }
    const { layers, heads } = { layers: vitrine.model.nLayers, heads: vitrine.model.nHeads };
    const asked = readAddress(here(), { layers, heads });
    anchor.current = asked.at;
    setLook({ ...asked.look, playing: false });
    if (state().engine !== null) {
      if (asked.off.join() !== [...state().off].join()) change({ off: new Set(asked.off) });
      if (asked.prompt !== null && !byIds() && asked.prompt !== state().prompt) setPrompt(asked.prompt);
    }
    if (asked.at !== null) document.getElementById(asked.at)?.scrollIntoView();
  };

  useEffect(() => {
    apply();
    read.current = true;
    const changed = () => {
      apply();
      write();
    };
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);

  const write = () => {
    if (!read.current || look().playing) return;
    const now = state();
    const { playing: _, ...opened } = look();
    const prompt = now.engine === null || now.prompt === made.prompt || byIds() ? null : now.prompt;
    let text = "";
    try {
      text = writeAddress({ prompt, off: [...now.off], look: opened, at: anchor.current });
    } catch {
      return;  // half a character cannot be written into an address
    }
    if (text === "" && !here().includes("=")) return;
    const hash = text !== "" ? `#${text}` : anchor.current !== null ? `#${anchor.current}` : "";
    if (hash === location.hash) return;
    try {
      history.replaceState(history.state, "", hash === "" ? location.pathname + location.search : hash);
    } catch {
      // A page inside another may not change its address.
    }
  };
  useEffect(write, [prompt, off, looked]);
  return null;
}
