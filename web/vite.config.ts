// Builds what the program embeds: src/main.tsx into dist/page.js and dist/page.css, which `vitrine explain` puts into its pages,
// with `--mode chat` src/chat/main.tsx into dist/chat.html, which `vitrine serve` gives at `/`, and with `--mode served`
// src/served/main.ts into dist/explain.html, into which the program puts dist/page.js and dist/page.css and which it gives at `/explain`.
// The same sources and lock file give the same bytes: no dates, no machine paths.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { defineConfig, type Plugin } from "vite";

/** The folder of the npm package that `file` belongs to, or nothing for our own files. */
function packageFolder(file: string): string | undefined {
  const at = file.lastIndexOf("/node_modules/");
  if (at < 0) return undefined;
  const [scope = "", name = ""] = file.slice(at + "/node_modules/".length).split("/");
  return join(file.slice(0, at), "node_modules", scope.startsWith("@") ? `${scope}/${name}` : scope);
}

/** Puts the license text of every package that is in the bundle at its head; packages with equal text share one copy. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        for (const chunk of Object.values(bundle)) {
          if (chunk.type !== "chunk") continue;
          const folders = [...new Set(Object.keys(chunk.modules).map(packageFolder).filter((f) => f !== undefined))].sort();
          const namesOf = new Map<string, string[]>();
          for (const folder of folders) {
            const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { name: string; version: string };
            const text = readFileSync(join(folder, "LICENSE"), "utf8").replace(/\r\n/g, "\n").trim();
            if (text.includes("*/")) throw new Error(`${folder}/LICENSE cannot stand in a comment`);
            namesOf.set(text, [...(namesOf.get(text) ?? []), `${about.name} ${about.version}`]);
          }
          const notices = [...namesOf].map(([text, names]) => `${names.join(", ")}\n\n${text}`).join("\n\n----\n\n");
          const head = "/*! The page of vitrine, Apache-2.0.";
          chunk.code = `${head}${notices === "" ? "" : ` It contains the packages below under their own licenses.\n\n${notices}\n`}*/\n${chunk.code}`;
          // The page holds this script inline: an end tag or a comment opener in it would end the element early.
          if (/<\/script|<!--/i.test(chunk.code)) throw new Error("page.js contains </script or <!--");
        }
      },
    },
  };
}

/** What a page of the server may do: run its own scripts and style, known by their hashes, and ask its own server. */
function policy(scripts: readonly string[], style: string): string {
  const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return `default-src 'none'; script-src ${scripts.map(hash).join(" ")}; style-src ${hash(style)}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'`;
}

/** Puts a bundle's script into its page with the page's policy; `parts` gives the other marks of the page. */
function onePage(folder: string, fileName: string, parts: (css: string | undefined, outDir: string) => Part): Plugin {
  return {
    name: "one-page",
    generateBundle: {
      order: "post",
      handler(options, bundle) {
        const [script, style] = [bundle["page.js"], bundle["page.css"]];
        if (script?.type !== "chunk") this.error("the bundle lacks page.js");
        const { scripts, css, marks } = parts(style?.type === "asset" ? String(style.source) : undefined, options.dir ?? "");
        if (/<\/style/i.test(css)) this.error("page.css contains </style");
        const all: Record<string, string> = { policy: policy([script.code, ...scripts], css), icon: `data:image/svg+xml;base64,${readFileSync(join(root, "src/chat/icon.svg")).toString("base64")}`, script: script.code, ...marks };
        const source = readFileSync(join(root, folder, "page.html"), "utf8").replace(/\{\{(\w+)\}\}/g, (mark, name: string) => all[name] ?? mark);
        for (const name of Object.keys(bundle)) delete bundle[name];
        this.emitFile({ type: "asset", fileName, source });
      },
    },
  };
}

interface Part {
  /** Scripts that the page may run besides its own. */
  scripts: string[];
  css: string;
  marks: Record<string, string>;
}

const pages: Record<string, { entry: string; plugin: () => Plugin }> = {
  chat: {
    entry: "src/chat/main.tsx",
    plugin: () => onePage("src/chat", "chat.html", (css) => {
      if (css === undefined) throw new Error("the bundle lacks page.css");
      return { scripts: [], css, marks: { style: css } };
    }),
  },
  served: {
    entry: "src/served/main.ts",
    // The marks of page.js and page.css stay for the program; the policy has their hashes.
    plugin: () => onePage("src/served", "explain.html", (_, outDir) => {
      const built = (name: string) => readFileSync(join(outDir, name), "utf8");
      return { scripts: [built("page.js")], css: built("page.css"), marks: {} };
    }),
  },
};

const root = dirname(new URL(import.meta.url).pathname);

export default defineConfig(({ mode }) => ({
  root,
  logLevel: "warn",
  publicDir: false,
  plugins: [licenses(), ...(pages[mode] === undefined ? [] : [pages[mode].plugin()])],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    emptyOutDir: false,  // the engine of live pages stays, and the pages of the server come second
    target: "es2022",
    cssTarget: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    lib: { entry: pages[mode]?.entry ?? "src/main.tsx", formats: ["iife"], name: "vitrinePage", fileName: () => "page.js", cssFileName: "page" },
  },
}));
