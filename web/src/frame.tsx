// What every page has around its text: the button that changes the theme, and the contents.

import { useTheme } from "./hooks";
import { useReading } from "./reading";
import { toggleTheme } from "./theme";

export function ThemeButton() {
  const now = useTheme();
  return <button type="button" class="theme" onClick={toggleTheme}>{now === "dark" ? "Light page" : "Dark page"}</button>;
}

export interface Chapter {
  /** Of the element. */
  id: string;
  title: string;
}

/** The chapters, with the one being read marked; beside the text where there is room, folded above it elsewhere. */
export function Contents({ name, chapters }: { name: string; chapters: readonly Chapter[] }) {
  const reading = useReading(chapters.map((chapter) => chapter.id));
  if (chapters.length < 2) return null;
  const list = (
    <ol>
      {chapters.map((chapter) => <li key={chapter.id}><a href={`#${chapter.id}`} {...(chapter.id === reading ? { "aria-current": "location" as const } : {})}>{chapter.title}</a></li>)}
    </ol>
  );
  return (
    <>
      <nav class="contents beside-text" aria-label={name}>{list}</nav>
      <details class="contents above-text"><summary>{name}</summary><nav aria-label={`${name}, folded`}>{list}</nav></details>
    </>
  );
}
