// OpenAI's and Anthropic's clients for JavaScript and Vercel's AI SDK against a running server, streamed and not.
//
//   npm install openai @anthropic-ai/sdk ai @ai-sdk/openai-compatible
//   vitrine serve --template bench/clients/chat_template.jinja --port 8080
//   node bench/clients/node_clients.mjs http://127.0.0.1:8080
import Anthropic from '@anthropic-ai/sdk';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, generateText, streamText } from 'ai';
import OpenAI from 'openai';

const base = process.argv[2] ?? 'http://127.0.0.1:8080';
const key = process.argv[3] ?? 'none';
let checks = 0;
const check = (holds, what) => {
  checks += 1;
  if (!holds) throw new Error(`failed: ${what}`);
};
const refused = async (call, status) => {
  try {
    await call();
  } catch (error) {
    return check(error.status === status, `status ${error.status}, expected ${status}`);
  }
  throw new Error(`not refused, expected ${status}`);
};
const messages = [{ role: 'system', content: 'You tell tales.' }, { role: 'user', content: 'Tell one.' }];

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const chat = { model, messages, max_completion_tokens: 16, temperature: 0 };
const whole = await openai.chat.completions.create(chat);
const answer = whole.choices[0].message.content;
check(answer.length > 0, 'openai: an answer');
let text = '', usage = null;
for await (const chunk of await openai.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? '';
  usage = chunk.usage ?? usage;
}
check(text === answer && usage.completion_tokens === whole.usage.completion_tokens, 'openai: the same answer streamed');
const runner = openai.chat.completions.stream(chat);
check((await runner.finalContent()) === answer, "openai: the client's own collection of a stream");
const completion = await openai.completions.create({ model, prompt: 'Once', max_tokens: 8, temperature: 0 });
text = '';
for await (const chunk of await openai.completions.create({ model, prompt: 'Once', max_tokens: 8, temperature: 0, stream: true })) text += chunk.choices[0].text;
check(text === completion.choices[0].text, 'openai: a completion streamed');
check((await openai.embeddings.create({ model, input: ['a', 'b'] })).data.length === 2, 'openai: embeddings');
const response = await openai.responses.create({ model, input: 'Tell one.', instructions: 'You tell tales.', max_output_tokens: 16, temperature: 0 });
check(response.output_text === answer, 'openai: a response');
text = '';
for await (const event of await openai.responses.create({ model, input: 'Tell one.', instructions: 'You tell tales.', max_output_tokens: 16, temperature: 0, stream: true }))
  if (event.type === 'response.output_text.delta') text += event.delta;
check(text === answer, 'openai: a response streamed');
await refused(() => openai.chat.completions.create({ ...chat, model: 'nothing' }), 404);
await refused(() => openai.completions.create({ model, prompt: 'a', suffix: 'b' }), 400);

const anthropic = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const message = { model, max_tokens: 16, temperature: 0, system: 'You tell tales.', messages: [{ role: 'user', content: 'Tell one.' }] };
check((await anthropic.messages.create(message)).content[0].text === answer, 'anthropic: the same answer');
const stream = anthropic.messages.stream(message);
check((await stream.finalText()) === answer, 'anthropic: the same answer streamed');
check((await anthropic.messages.countTokens({ model, system: message.system, messages: message.messages })).input_tokens > 0, 'anthropic: tokens are counted');
await refused(() => anthropic.messages.create({ ...message, max_tokens: 0 }), 400);

const provider = createOpenAICompatible({ name: 'vitrine', baseURL: `${base}/v1`, apiKey: key, includeUsage: true });
const made = await generateText({ model: provider(model), messages, maxOutputTokens: 16, temperature: 0, maxRetries: 0 });
check(made.text === answer && made.usage.outputTokens > 0, 'ai: the same answer');
const flow = streamText({ model: provider(model), messages, maxOutputTokens: 16, temperature: 0, maxRetries: 0 });
text = '';
for await (const part of flow.textStream) text += part;
check(text === answer && (await flow.usage).outputTokens > 0, 'ai: the same answer streamed');
check((await embed({ model: provider.textEmbeddingModel(model), value: 'a' })).embedding.length > 0, 'ai: an embedding');
console.log(`openai, @anthropic-ai/sdk and ai: ${checks} checks hold`);
