// What the page must know to show a picture: how to draw it and how to put it in a table.

import type { JSX } from "preact";
import type { PictureName, Pictures } from "../data";
import type { Table } from "../figure";
import type { Made } from "../made";

export type Present<N extends PictureName> = Extract<Pictures[N], { available: true }>;

export interface Entry<N extends PictureName> {
  draw: (props: { picture: Present<N> }) => JSX.Element;
  table: (picture: Present<N>) => Table;
  /** Where its numbers come from. */
  made: readonly Made[];
  /** Breaks out of the reading column. */
  wide?: boolean | ((picture: Present<N>) => boolean);
}
