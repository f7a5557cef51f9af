// Builds src/main.tsx into exactly dist/page.js and dist/page.css, which the program embeds.
// The same sources and lock file give the same bytes: no hashes, no dates, no machine paths.
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

export default defineConfig({
  root: dirname(new URL(import.meta.url).pathname),
  logLevel: "warn",
  publicDir: false,
  plugins: [licences()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "vitrinePage", fileName: () => "page.js", cssFileName: "page" },
  },
});
