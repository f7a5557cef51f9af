// A picture with everything around it: title, caption, text alternative, data as a table, the command that makes it.

import { Fragment, type ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { Copyable, Fold } from "./controls";
import { commandLine, withSpaces } from "./document";
import { precise } from "./format";
import { MadeOf, type Made } from "./made";
import { pngOf } from "./png";
import { saveFile } from "./save";
import { inLight } from "./theme";

export interface Table {
  columns: readonly string[];
  rows: readonly (readonly (string | number | null)[])[];
  /** Said above the table: what was left out, which head it is. */
  note?: string;
}

interface Props {
  name: string;
  title: string;
  caption: string;
  alt: string;
  wide: boolean;
  /** Where its numbers come from. */
  made?: readonly Made[];
  table: () => Table | readonly Table[];
  /** False: no command draws this picture alone. */
  alone?: boolean;
  children: ComponentChildren;
}

export function Figure({ name, title, caption, alt, wide, made = [], table, alone = true, children }: Props) {
  return (
    <figure id={`picture-${name}`} data-picture={name} class={wide ? "wide" : undefined} aria-labelledby={`title-${name}`} aria-describedby={`alt-${name}`}>
      <p class="figure-title"><span id={`title-${name}`}>{title}</span>{made.map((of) => <Fragment key={of}>{" "}<MadeOf of={of} /></Fragment>)}</p>
      <p class="unseen" id={`alt-${name}`}>{withSpaces(alt)}</p>
      <div class="figure-body">{children}</div>
      <figcaption><Prose text={caption} /></figcaption>
      <div class="figure-foot">
        <Fold summary="Description and data" class="data">{() => <><p>{withSpaces(alt)}</p>{[table()].flat().map((one, i) => <DataTable key={i} title={title} table={one} />)}</>}</Fold>
        <Fold summary="As a file">
          {() => (
            <>
              <AsPng name={name} />
              {alone && (
                <>
                  <p>This picture alone, as SVG and as JSON:</p>
                  <Copyable label={`command for ${title} as SVG`} text={commandLine(`picture ${name}`, `--out ${name}.svg`)} />
                  <Copyable label={`command for ${title} as JSON`} text={commandLine(`picture ${name}`, "--json")} />
                </>
              )}
            </>
          )}
        </Fold>
      </div>
    </figure>
  );
}

/** The figure as it stands here, with what is chosen in it. */
function AsPng({ name }: { name: string }) {
  const line = useRef<HTMLParagraphElement>(null);
  const [said, say] = useState("");
  const save = async (white: boolean) => {
    const figure = line.current!.closest("figure")!;
    say("Drawing …");
    try {
      saveFile(`${name}.png`, await (white ? inLight(() => pngOf(figure, "#ffffff")) : pngOf(figure, getComputedStyle(document.documentElement).backgroundColor)));
      say("");
    } catch {
      say("This browser cannot draw it.");
    }
  };
  return (
    <p ref={line}>
      The picture as it stands here, as PNG: <button type="button" onClick={() => void save(false)}>On the page's color</button> <button type="button" onClick={() => void save(true)}>On white</button> <span role="status">{said}</span>
    </p>
  );
}

const shownRows = 1000;

function DataTable({ title, table }: { title: string; table: Table }) {
  const rows = table.rows.slice(0, shownRows);
  return (
    <>
      {table.note !== undefined && <p>{table.note}</p>}
      {rows.length < table.rows.length && <p>The first {shownRows} of {table.rows.length} rows; the JSON has all.</p>}
      <div class="table-scroll" tabIndex={0} role="region" aria-label={`Data of ${title}`}>
        <table>
          <thead><tr>{table.columns.map((column, i) => <th key={i} scope="col">{column}</th>)}</tr></thead>
          <tbody>
            {rows.map((row, i) => (
              <tr key={i}>
                {row.map((cell, j) => (typeof cell === "string"
                  ? <td key={j}><bdi>{cell}</bdi></td>
                  : <td key={j} class="number">{cell === null ? "–" : precise(cell)}</td>))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** Plain text in which `code` stands between backquotes, and pieces have their spaces marked. */
export function Prose({ text }: { text: string }) {
  return <>{text.split("`").map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : withSpaces(part)))}</>;
}
