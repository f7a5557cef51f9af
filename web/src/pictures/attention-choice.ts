// Which head the attention picture shows enlarged, for parts of the page that lead there.

let listener: ((layer: number, head: number) => void) | undefined;

/** The picture takes the choice until the returned function ends it. */
export function onHead(choose: (layer: number, head: number) => void): () => void {
  listener = choose;
  return () => {
    if (listener === choose) listener = undefined;
  };
}

export function chooseHead(layer: number, head: number): void {
  listener?.(layer, head);
}
