// The small controls of the figures. All are native inputs, so that keys, names and focus are the browser's own.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { usePrinting } from "./hooks";
import { printing } from "./print";

interface ChoiceProps<T extends string | number> {
  label: string;
  options: readonly { value: T; name: string }[];
  value: T;
  onChange: (value: T) => void;
}

/** A few alternatives side by side. */
export function Choice<T extends string | number>({ label, options, value, onChange }: ChoiceProps<T>) {
  const group = useId();
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option.value} class={option.value === value ? "chosen" : undefined}>
          <input type="radio" name={group} checked={option.value === value} onChange={() => onChange(option.value)} />
          <span>{option.name}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface SliderProps {
  label: string;
  min: number;
  max: number;
  step?: number;
  value: number;
  onChange: (value: number) => void;
  /** The value in words, beside the slider and for screen readers. */
  says: string;
}

export function Slider({ label, min, max, step = 1, value, onChange, says }: SliderProps) {
  return (
    <label class="slider">
      <span class="slider-label">{label}</span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-valuetext={says}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <output>{says}</output>
    </label>
  );
}

/** Text with a button that copies it; where the clipboard is refused, the text is selected instead. */
export function Copyable({ text, label }: { text: string; label: string }) {
  const code = useRef<HTMLElement>(null);
  const [done, set] = useState("");
  useEffect(() => {
    if (done === "") return;
    const timer = setTimeout(() => set(""), 2000);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set("Copied");
    } catch {
      if (code.current !== null) window.getSelection()?.selectAllChildren(code.current);
      set("Selected: press Ctrl+C");
    }
  };
  return (
    <div class="copyable">
      <pre tabIndex={0} aria-label={label}><code ref={code}>{text}</code></pre>
      <button type="button" onClick={copy} aria-label={`Copy ${label}`}>{done === "" ? "Copy" : done}</button>
    </div>
  );
}

interface FoldProps {
  summary: ComponentChildren;
  children: () => ComponentChildren;
  class?: string;
  id?: string;
  /** Open from the start. */
  opened?: boolean;
  /** Open on paper. */
  printed?: boolean;
}

/** A part that opens and closes; its inside is made when it is first opened. */
export function Fold({ summary, children, class: kind = "", id, opened = false, printed = false }: FoldProps) {
  const [open, set] = useState(opened);
  const [made, make] = useState(opened);
  const paper = usePrinting() && printed;
  return (
    <details
      class={`fold ${kind}`}
      id={id}
      open={open || paper}
      onToggle={(event) => {
        if (printing()) return;
        set(event.currentTarget.open);
        if (event.currentTarget.open) make(true);
      }}
    >
      <summary>{summary}</summary>
      {(made || paper) && <div class="fold-inside">{children()}</div>}
    </details>
  );
}
