// The state that components are drawn from.

import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  state: () => T;
  set: (part: Partial<T>) => void;
  /** The state; the caller is drawn again when it changes. */
  use: () => T;
}

export function store<T extends object>(first: T): Store<T> {
  let now = first;
  const listeners = new Set<() => void>();
  return {
    state: () => now,
    set: (part) => {
      now = { ...now, ...part };
      for (const listener of listeners) listener();
    },
    use: () => {
      const [shown, show] = useState(now);
      useEffect(() => {
        const listener = () => show(now);
        listeners.add(listener);
        listener();
        return () => {
          listeners.delete(listener);
        };
      }, []);
      return shown;
    },
  };
}
