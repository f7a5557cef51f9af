// Whether a part of the page is near the window just now.

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function useSeen<E extends HTMLElement>(margin: string): [RefObject<E | null>, boolean] {
  const box = useRef<E>(null);
  const [seen, set] = useState(false);
  useLayoutEffect(() => {
    const observer = new IntersectionObserver((entries) => set(entries.at(-1)!.isIntersecting), { rootMargin: margin });
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, [margin]);
  return [box, seen];
}
