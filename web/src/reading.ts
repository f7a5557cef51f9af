// Which part of the page is being read, and bringing a part into sight.

import { useEffect, useState } from "preact/hooks";

/** The id of the element in the upper part of the window, of those named. */
export function useReading(ids: readonly string[]): string | null {
  const [reading, set] = useState<string | null>(null);
  useEffect(() => {
    const sections = ids.flatMap((id) => document.getElementById(id) ?? []);
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) set(entry.target.id);
    }, { rootMargin: "-20% 0px -75% 0px" });
    for (const section of sections) observer.observe(section);
    return () => observer.disconnect();
  }, []);
  return reading;
}

/** Scrolls so that the beginning of `element` can be seen, if it cannot. */
export function reveal(element: HTMLElement | null): void {
  if (element === null) return;
  const { top, height } = element.getBoundingClientRect();
  const high = window.innerHeight;
  if (top >= 0 && top + Math.min(height, 0.4 * high) <= high) return;
  element.scrollIntoView({ block: height < 0.8 * high ? "center" : "start" });
}
