// What stands in a view's place until the server has answered.

import type { Trouble } from "../trouble";

export function Waiting({ trouble }: { trouble: Trouble | null }) {
  if (trouble === null) return <p class="waiting" role="status">Asking the model …</p>;
  return <div class="trouble" role="alert"><p>{trouble.message}</p></div>;
}
