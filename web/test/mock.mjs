// A server for the tests of its page: the endpoints that the page asks, answered by a made-up model of a few dozen words that
// always gives the same. It refuses fields that the API does not have, so that the page cannot send what no server reads.
//   node test/mock.mjs [PORT] [--text]      serves the built page to look at

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const words = " the, king, and, queen, went, into, forest, where, a, little, house, stood, by, water, old, wolf, sat, on, hill,., said, that, no, one, had, seen, it, before, “é”, FOX".split(",").map((word) => (word === "." ? "." : ` ${word.trim()}`));
// A character that takes two tokens, as the API writes what is no character by itself.
const halves = { bytes: [[0x20, 0xf0, 0x9f], [0xa6, 0x8a]], names: ["bytes:\\x20\\xf0\\x9f", "bytes:\\xa6\\x8a"], text: " 🦊" };
words[words.indexOf(" FOX")] = halves.names[0] ?? "";
const layers = 4, heads = 3, end = "<|end|>";
const sampling = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens"];

/** @typedef {{chat?: boolean, key?: string, ids?: boolean, pace?: () => Promise<unknown>, missing?: string[], context?: number, length?: number}} Options */

/** A number from 0 to 1 that depends on everything it is given. @param {...(number | string)} of */
function dice(...of) {
  let hash = 2166136261;
  for (const char of of.join(" ")) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619) >>> 0;
  hash = Math.imul(hash ^ (hash >>> 15), 2246822519) >>> 0;
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
}

export class Mock {
  /** @param {Options} [options] */
  constructor(options = {}) {
    this.options = /** @type {Options} */ ({ chat: true, ids: true, pace: () => new Promise((next) => setImmediate(next)), length: 24, ...options });
    /** Every request that asked for something. @type {{path: string, body: any, key: string | undefined}[]} */
    this.requests = [];
    /** What the next request to a path is answered with instead. @type {Map<string, {status: number, error?: object, headers?: Record<string, string>, breakAfter?: number}>} */
    this.next = new Map();
    /** @type {string[]} */
    this.vocabulary = [end, "<|user|>", "<|assistant|>", "<|system|>", ...words, halves.names[1] ?? ""];
    /** Ids of words as they were at first. */
    this.known = new Map(this.vocabulary.map((word, id) => [word, id]));
    /** Streams that were left before their end. */
    this.left = 0;
    /** Streams pause after this many tokens until `release` is called. */
    this.most = Infinity;
    this.release = () => {};
    this.released = /** @type {Promise<unknown>} */ (Promise.resolve());
    this.server = createServer((request, response) => void this.handle(request, response));
  }

  /** Listens and returns the page's address. */
  async start(port = 0) {
    await new Promise((done) => this.server.listen(port, "127.0.0.1", () => done(null)));
    const address = /** @type {import("node:net").AddressInfo} */ (this.server.address());
    return `http://127.0.0.1:${address.port}/`;
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  /** @param {string} word */
  id(word) {
    const known = this.known.get(word);
    if (known !== undefined) return known;
    this.known.set(word, this.vocabulary.push(word) - 1);
    return this.vocabulary.length - 1;
  }

  /** From now on answers pause after `tokens` tokens, as if the next one took long, until `release` is called. @param {number} tokens */
  hold(tokens) {
    this.most = tokens;
    this.released = new Promise((go) => {
      this.release = () => {
        this.most = Infinity;
        go(undefined);
      };
    });
  }

  /** From now on the model says something else where it said `word`. @param {string} word @param {string} text */
  rename(word, text) {
    this.vocabulary[this.id(word)] = text;
  }

  /** Ids of a text: words with the space before them. @param {string} text @param {boolean} control */
  tokenize(text, control) {
    const pieces = text.match(control ? /<\|\w+\|>|\n|\s?[^\s<]+|\s|</gu : /\n|\s?[^\s]+|\s/gu) ?? [];
    return pieces.map((piece) => this.id(piece));
  }

  /** @param {{role: string, content: string}[]} messages */
  template(messages) {
    return `${messages.map(({ role, content }) => `<|${role}|>${content}${end}`).join("")}<|assistant|>`;
  }

  /** The text of tokens. @param {number[]} ids */
  text(ids) {
    return ids.map((id) => this.vocabulary[id] ?? "").join("").replaceAll(halves.names.join(""), halves.text).replaceAll(/bytes:(\\x..)+/g, "");
  }

  /** The likeliest next tokens. @param {number[]} ids @param {object[]} [edits] */
  top(ids, edits = []) {
    const scored = words.map((word) => ({ id: this.id(word), logit: 6 * dice(ids.at(-1) ?? 0, ids.length % 7, word, edits.length === 0 ? "" : JSON.stringify(edits)) }));
    const sum = scored.reduce((all, { logit }) => all + Math.exp(logit), 0);
    return scored.map(({ id, logit }) => ({ id, logprob: logit - Math.log(sum) })).sort((a, b) => b.logprob - a.logprob);
  }

  /** What an answer to these ids is. @param {number[]} ids @param {any} body @param {number} [already] */
  generate(ids, body, already = 0) {
    const most = body.max_tokens ?? 16;
    /** @type {{id: number, logprob: number, top: {id: number, logprob: number}[]}[]} */
    const tokens = [];
    const all = [...ids];
    while (tokens.length < most) {
      if (already + tokens.length >= (this.options.length ?? 24)) return { tokens, finish: "stop" };
      const second = this.id(halves.names[1] ?? "");
      const top = all.at(-1) === this.id(halves.names[0] ?? "") ? [{ id: second, logprob: 0 }] : this.top(all, body.edits);
      const pick = body.temperature === 0 ? 0 : Math.floor(3 * dice(body.seed ?? 0, all.length, all.at(-1) ?? 0) ** 2);
      const chosen = top[pick] ?? top[0];
      if (chosen === undefined) break;
      tokens.push({ ...chosen, top });
      all.push(chosen.id);
    }
    return { tokens, finish: "length" };
  }

  /** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
  async handle(request, response) {
    const path = new URL(request.url ?? "/", "http://localhost").pathname;
    /** @param {number} status @param {object} body @param {Record<string, string>} [headers] */
    const json = (status, body, headers = {}) => {
      response.writeHead(status, { "Content-Type": "application/json", ...headers });
      response.end(JSON.stringify(body));
    };
    /** @param {number} status @param {string} message @param {string} code */
    const fail = (status, message, code) => json(status, { error: { message, type: "invalid_request_error", param: null, code, status } });
    if (request.method === "GET" && path === "/") {
      const html = readFileSync(join(here, "../dist/chat.html"), "utf8");
      const policy = /http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(html)?.[1];
      response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": `${policy}; frame-ancestors 'none'` });
      return response.end(html);
    }
    /** @type {Buffer[]} */
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length === 0 ? {} : JSON.parse(Buffer.concat(chunks).toString());
    this.requests.push({ path, body, key: request.headers.authorization });
    const { key, missing = [] } = this.options;
    if (key !== undefined && request.headers.authorization !== `Bearer ${key}`) return fail(401, "This server needs an API key, in Authorization: Bearer.", "invalid_api_key");
    if (missing.includes(path)) return fail(404, `there is no ${path} here`, "not_found");
    const next = this.next.get(path);
    if (next !== undefined && next.breakAfter === undefined) {
      this.next.delete(path);
      return json(next.status, { error: next.error }, next.headers);
    }
    const allowed = fieldsOf[path];
    if (allowed === undefined) return fail(404, `there is no ${path} here`, "not_found");
    for (const name of Object.keys(body)) if (!allowed.includes(name)) return fail(400, `${path} has no field "${name}"`, "unknown_parameter");
    this.answer(path, body, json, fail, response);
  }

  /**
   * @param {string} path @param {any} body @param {(status: number, body: object) => void} json
   * @param {(status: number, message: string, code: string) => void} fail @param {import("node:http").ServerResponse} response
   */
  answer(path, body, json, fail, response) {
    const { chat, context = 512 } = this.options;
    const piece = (/** @type {number} */ id) => this.vocabulary[id] ?? null;
    const ids = () => (Array.isArray(body.prompt) ? body.prompt : this.tokenize(body.prompt, true));
    switch (path) {
      case "/v1/models": return json(200, { object: "list", data: [{ id: "made-up-4x3", object: "model", created: 0, owned_by: "vitrine" }] });
      case "/props": return json(200, { model_path: "made up.gguf", chat_template: chat ? "{{ messages }}" : "", default_generation_settings: { n_ctx: context }, eos_token: end });
      case "/v1/model": return json(200, { n_layers: layers, n_heads: heads });
      case "/tokenize": return json(200, { tokens: body.messages === undefined ? this.tokenize(body.content, body.parse_special ?? true) : this.tokenize(this.template(body.messages), true) });
      case "/v1/chat/completions": {
        if (!chat) return fail(400, "the model has no chat template", "no_chat_template");
        const prompt = this.tokenize(this.template(body.messages), true);
        if (prompt.length > context) return fail(400, `the prompt has ${prompt.length} tokens, the model reads ${context}`, "context_length_exceeded");
        return this.stream(path, prompt, body, response);
      }
      case "/v1/completions": {
        if (ids().length > context) return fail(400, `the prompt has ${ids().length} tokens, the model reads ${context}`, "context_length_exceeded");
        return this.stream(path, ids(), body, response);
      }
      case "/v1/inspect": {
        const n = ids().length;
        return json(200, {
          tokens: ids(), pieces: ids().map(piece),
          hooks: Array.from({ length: layers }, (_, layer) => ({
            name: `blocks.${layer}.attn.hook_pattern`, shape: [heads, 1, n],
            values: Array.from({ length: heads }, (_, head) => {
              const scores = Array.from({ length: n }, (_, at) => Math.exp(7 * dice("look", layer, head, at, n)));
              const sum = scores.reduce((a, b) => a + b, 0);
              return [scores.map((score) => score / sum)];
            }),
          })),
          command: `vitrine trace --tokens ${ids().join(",")} --hooks '${body.hooks[0]}' --out trace.safetensors`,
        });
      }
      case "/v1/lens": {
        const names = ["blocks.0.hook_resid_pre", ...Array.from({ length: layers }, (_, layer) => `blocks.${layer}.hook_resid_post`)];
        return json(200, {
          tokens: ids(), pieces: ids().map(piece),
          layers: names.map((name, depth) => ({
            name,
            positions: [{ position: ids().length - 1, top: this.top(ids(), depth === layers ? [] : [{ depth }]).slice(0, body.top).map(({ id, logprob }) => ({ token: id, piece: piece(id), logprob })) }],
          })),
        });
      }
      case "/v1/heads":
        return json(200, {
          token: body.token,
          layers: Array.from({ length: layers }, (_, layer) => ({ layer, heads: Array.from({ length: heads }, (_, head) => (4 * dice("effect", layer, head, body.token, body.against ?? "") - 2) * (head % 2 === 0 ? 1 : 0.003)), mlp: 3 * dice("mlp", layer, body.token) - 1 })),
          embed: 0.25, bias: 0,
        });
      case "/v1/steer": {
        const side = (/** @type {any} */ one) => {
          const { tokens } = this.generate(ids(), one);
          return { text: this.text(tokens.map(({ id }) => id)), tokens: tokens.map(({ id }) => id), logprobs: tokens.map(({ logprob }) => logprob) };
        };
        return json(200, { before: side({ ...body, edits: [] }), after: side(body) });
      }
    }
  }

  /** @param {string} path @param {number[]} prompt @param {any} body @param {import("node:http").ServerResponse} response */
  stream(path, prompt, body, response) {
    const inChat = path.endsWith("chat/completions");
    const { ids, pace } = this.options;
    const text = (/** @type {number} */ id) => this.vocabulary[id] ?? "";
    // What became certain with a token: the second half of a character brings all of it.
    const certain = (/** @type {number} */ id) => (text(id) === halves.names[1] ? halves.text : text(id) === halves.names[0] ? "" : text(id));
    const start = prompt.lastIndexOf(this.id("<|assistant|>"));
    const { tokens, finish } = this.generate(prompt, body, start < 0 ? 0 : prompt.length - 1 - start);
    const of = (/** @type {{id: number, logprob: number}} */ { id, logprob }) => ({ ...(ids ? { id } : {}), token: text(id), logprob, bytes: halves.bytes[halves.names.indexOf(text(id))] ?? [...Buffer.from(text(id))] });
    const chunk = (/** @type {(typeof tokens)[number]} */ token) => (inChat
      ? { index: 0, delta: { content: certain(token.id) }, logprobs: { content: [{ ...of(token), top_logprobs: token.top.slice(0, body.top_logprobs).map(of) }] }, finish_reason: null }
      : { index: 0, text: certain(token.id), ...(ids ? { token_ids: [token.id] } : {}), logprobs: { tokens: [text(token.id)], token_logprobs: [token.logprob], top_logprobs: [Object.fromEntries(token.top.slice(0, body.logprobs).map(({ id, logprob }) => [text(id), logprob]))], ...(ids ? { top_token_ids: [Object.fromEntries(token.top.slice(0, body.logprobs).map(({ id }) => [text(id), id]))] } : {}), text_offset: [0] }, finish_reason: null });
    const whole = (/** @type {object} */ choice) => `data: ${JSON.stringify({ id: "made-up", object: inChat ? "chat.completion.chunk" : "text_completion", created: 0, model: "made-up-4x3", choices: [choice] })}\n\n`;
    const next = this.next.get(path);
    this.next.delete(path);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(": ping\n\n");
    if (inChat) response.write(whole({ index: 0, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }));
    response.on("close", () => {
      if (!response.writableEnded) ++this.left;
    });
    const send = async () => {
      for (const [at, token] of tokens.entries()) {
        await pace?.();
        if (at >= this.most) await this.released;
        if (response.destroyed) return;
        if (next?.breakAfter === at + 1) {
          if (next.error === undefined) response.destroy();
          else response.end(`data: ${JSON.stringify({ error: next.error })}\n\n`);
          return;
        }
        response.write(whole(chunk(token)));
      }
      response.write(whole({ index: 0, ...(inChat ? { delta: {} } : { text: "" }), logprobs: null, finish_reason: finish }));
      response.end("data: [DONE]\n\n");
    };
    void send();
  }
}

/** @type {Record<string, string[]>} */
const fieldsOf = {
  "/v1/models": [], "/props": [], "/v1/model": [],
  "/tokenize": ["content", "add_special", "parse_special", "messages", "add_generation_prompt"],
  "/v1/chat/completions": ["model", "messages", ...sampling, "stream", "logprobs", "top_logprobs", "edits", "return_token_ids", "reasoning_format"],
  "/v1/completions": ["model", "prompt", ...sampling, "stream", "logprobs", "edits", "return_token_ids"],
  "/v1/inspect": ["prompt", "hooks", "format", "edits"],
  "/v1/lens": ["prompt", "positions", "top", "layers", "edits"],
  "/v1/heads": ["prompt", "token", "against", "position"],
  "/v1/steer": ["prompt", "messages", "edits", ...sampling],
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const port = Number(process.argv[2] ?? 8090);
  const pace = () => new Promise((next) => setTimeout(next, 40));  // to look at: a pace, not a wait
  console.log(await new Mock({ chat: !process.argv.includes("--text"), pace }).start(port));
}
