// What the pictures need to know of the page they are on.

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { onPrint, printing } from "./print";
import { onTheme, theme, type Theme } from "./theme";

/** The theme in force; the caller is drawn again when it changes. */
export function useTheme(): Theme {
  const [now, set] = useState(theme);
  useLayoutEffect(() => onTheme(() => set(theme())), []);
  return now;
}

/** Whether the page is being printed; the caller is drawn again when that changes. */
export function usePrinting(): boolean {
  const [now, set] = useState(printing);
  useLayoutEffect(() => onPrint(() => set(printing())), []);
  return now;
}

/** A reference for an element and its inner width in CSS pixels, 0 until it is known. */
export function useWidth<E extends HTMLElement>(): [RefObject<E | null>, number] {
  const ref = useRef<E>(null);
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current;
    if (element === null) return;
    // What has no width is hidden, not narrow: what was drawn stays.
    const measure = () => {
      const width = Math.floor(element.getBoundingClientRect().width);
      if (width > 0) set(width);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    const end = onPrint(measure);  // no observer reports in time for paper
    return () => {
      observer.disconnect();
      end();
    };
  }, []);
  return [ref, width];
}

/** A reference for an element and whether it has come near the window yet, or is printed; it stays true. */
export function useNear<E extends HTMLElement>(margin = "600px"): [RefObject<E | null>, boolean] {
  const ref = useRef<E>(null);
  const [near, set] = useState(false);
  useLayoutEffect(() => {
    const element = ref.current;
    if (element === null || near) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) set(true);
      },
      { rootMargin: margin },
    );
    observer.observe(element);
    const end = onPrint(() => set(true));
    return () => {
      observer.disconnect();
      end();
    };
  }, [near, margin]);
  return [ref, near];
}
