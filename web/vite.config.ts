// Builds what the program embeds: src/main.tsx into dist/page.js and dist/page.css, which `vitrine explain` puts into its pages,
// and with `--mode chat` src/chat/main.tsx into dist/chat.html, which `vitrine serve` gives at `/`.
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

/** Puts the licence text of every package that is in the bundle at its head; packages with equal text share one copy. */
function licences(): Plugin {
  return {
    name: "licences",
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
          const head = "/*! The page of vitrine, Apache-2.0. It contains the packages below under their own licences.";
          chunk.code = `${head}\n\n${notices}\n*/\n${chunk.code}`;
          // The page holds this script inline: an end tag or a comment opener in it would end the element early.
          if (/<\/script|<!--/i.test(chunk.code)) throw new Error("page.js contains </script or <!--");
        }
      },
    },
  };
}

/** What the page of the server may do: run its own script and style, known by their hashes, and ask its own server. */
function policy(script: string, style: string): string {
  const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'`;
}

/** Puts script and style into one page with their policy. */
function onePage(): Plugin {
  return {
    name: "one-page",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        const [script, style] = [bundle["page.js"], bundle["page.css"]];
        if (script?.type !== "chunk" || style?.type !== "asset") this.error("the bundle lacks page.js or page.css");
        const css = String(style.source);
        if (/<\/style/i.test(css)) this.error("page.css contains </style");
        const icon = readFileSync(join(root, "src/chat/icon.svg")).toString("base64");
        const source = readFileSync(join(root, "src/chat/page.html"), "utf8")
          .replace("{{policy}}", () => policy(script.code, css))
          .replace("{{icon}}", () => `data:image/svg+xml;base64,${icon}`)
          .replace("{{style}}", () => css)
          .replace("{{script}}", () => script.code);
        for (const name of Object.keys(bundle)) delete bundle[name];
        this.emitFile({ type: "asset", fileName: "chat.html", source });
      },
    },
  };
}

const root = dirname(new URL(import.meta.url).pathname);

export default defineConfig(({ mode }) => ({
  root,
  logLevel: "warn",
  publicDir: false,
  plugins: mode === "chat" ? [licences(), onePage()] : [licences()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    emptyOutDir: false,  // the engine of live pages stays, and the page of the server comes second
    target: "es2022",
    cssTarget: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    lib: { entry: mode === "chat" ? "src/chat/main.tsx" : "src/main.tsx", formats: ["iife"], name: "vitrinePage", fileName: () => "page.js", cssFileName: "page" },
  },
}));
