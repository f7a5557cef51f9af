// A page of pictures for research: what one command computed, one section a picture.

import { Copyable } from "../controls";
import { Prose } from "../figure";
import { Contents, ThemeButton } from "../frame";
import { MadeLegend } from "../made";
import type { Section } from "./data";
import { Heads } from "./heads";
import { Curves, Layers } from "./layers";
import { Losses } from "./losses";
import { Patch } from "./patch";
import { study } from "./shared";

const titles: Record<Section["picture"], string> = { heads: "What the heads look at", patch: "Place by place", losses: "Word by word", layers: "Layer by layer", curves: "Where in the text" };

function Picture({ section, name }: { section: Section; name: string }) {
  switch (section.picture) {
    case "heads": return <Heads p={section} />;
    case "patch": return <Patch p={section} />;
    case "losses": return <Losses p={section} />;
    case "layers": return <Layers p={section} />;
    case "curves": return <Curves p={section} name={name} />;
  }
}

export function Study() {
  // Curves follow each other in one chapter.
  const chapters: { id: string; title: string; sections: Section[] }[] = [];
  for (const section of study.sections) {
    if (chapters.at(-1)?.id !== section.picture) chapters.push({ id: section.picture, title: titles[section.picture], sections: [] });
    chapters.at(-1)!.sections.push(section);
  }
  return (
    <>
      <a class="skip" href="#main">To the text</a>
      <ThemeButton />
      <Contents name="Contents" chapters={chapters} />
      <main id="main">
        <header class="opening">
          <p class="kicker">{study.kicker}</p>
          <h1>{study.title}</h1>
          {study.lines.map((line) => <p key={line} class="summary"><Prose text={line} /></p>)}
          <MadeLegend of={study.sections.some((section) => section.picture === "heads" && section.circuits !== null) ? ["run", "model"] : ["run"]} />
          <p class="remark">This page was made by</p>
          <Copyable label="the command of this page" text={study.command} />
          <p class="hint">Point at a picture, touch it, or move to it with the Tab key and walk through it with the arrow keys, to read its values. Press Enter or click to see more of one.</p>
        </header>
        {chapters.map(({ id, title, sections }) => (
          <section key={id} id={id} aria-labelledby={`heading-${id}`}>
            <h2 id={`heading-${id}`}>{title}</h2>
            {sections.map((section, i) => <Picture key={i} section={section} name={`${id}-${i}`} />)}
          </section>
        ))}
        <footer><p>Made by vitrine {study.version}. The page needs no network: its numbers are inside it, under <code>window.vitrine</code>.</p></footer>
      </main>
    </>
  );
}
