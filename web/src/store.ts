// The state that components are drawn from.

import { useEffect, useRef, useState } from "preact/hooks";

export interface Store<T> {
  state: () => T;
  set: (part: Partial<T>) => void;
  /** The state, or what `select` takes of it; the caller is drawn again when that changes. */
  use: { (): T; <S>(select: (now: T) => S): S };
}

export function store<T extends object>(first: T): Store<T> {
  let now = first;
  const listeners = new Set<() => void>();
  const whole = (of: T): unknown => of;
  return {
    state: () => now,
    set: (part) => {
      now = { ...now, ...part };
      for (const listener of listeners) listener();
    },
    use: (select: (now: T) => unknown = whole) => {
      const latest = useRef(select);
      latest.current = select;
      const shown = select(now);
      const [, show] = useState(shown);
      useEffect(() => {
        const listener = () => show(() => latest.current(now));
        listeners.add(listener);
        listener();
        return () => {
          listeners.delete(listener);
        };
      }, []);
      return shown as never;
    },
  };
}
