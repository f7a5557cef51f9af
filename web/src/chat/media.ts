// Whether there is room for the conversations beside the text.

import { useEffect, useState } from "preact/hooks";

const query = window.matchMedia("(min-width: 60rem)");

export function useWide(): boolean {
  const [wide, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return wide;
}
