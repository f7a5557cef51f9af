// `vitrine serve` for tests of its pages.

import { spawn } from "node:child_process";

/** Starts a server on a free port. Its address ends with a slash; who starts it ends it.
 * @param {string} program @param {readonly string[]} args @param {string} [cwd] */
export async function serve(program, args, cwd) {
  const server = spawn(program, ["serve", "--port", "0", ...args], { stdio: ["ignore", "ignore", "pipe"], ...(cwd === undefined ? {} : { cwd }) });
  let said = "";
  const url = await new Promise((/** @type {(url: string) => void} */ done, fail) => {
    server.stderr.on("data", (/** @type {Buffer} */ data) => {
      said += data;
      const found = /(https?:\/\/[\w.:[\]]+)/.exec(said);
      if (found !== null) done(`${found[1]}/`);
    });
    server.on("exit", () => fail(new Error(`the server ended: ${said}`)));
  });
  return { url, server };
}
