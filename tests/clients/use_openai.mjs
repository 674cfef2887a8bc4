// The official SDK for node: plain, its `stream` helper and `runTools`.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { cities, failure, getWeather, headers, model, options, play, prompts } from "./scenes.mjs";

const client = new OpenAI({ ...options, defaultHeaders: headers, maxRetries: 0 });
const chat = client.chat.completions;
const ask = (name) => [{ role: "user", content: prompts[name] }];
const person_format = zodResponseFormat(z.object({ name: z.string(), age: z.number() }), "person");
const tools = [{
  type: "function",
  function: {
    name: "get_weather", description: "The temperature in a city.", parse: JSON.parse, function: (a) => String(getWeather(a)),
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
}];

async function hello() {
  const answer = await chat.create({ model, messages: ask("hello") });
  return { text: answer.choices[0].message.content, tokens: answer.usage.total_tokens };
}

async function hello_streamed() {
  const stream = chat.stream({ model, messages: ask("hello"), stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  const answer = await stream.finalChatCompletion();
  if (answer.choices[0].message.content !== text) throw new Error(`the parts are ${text}`);
  return { text, tokens: answer.usage.total_tokens };
}

async function likes() {
  const answer = await chat.create({ model, messages: ask("hello") });
  const messages = [...ask("hello"), answer.choices[0].message, ...ask("likes")];
  return { text: (await chat.create({ model, messages })).choices[0].message.content };
}

async function weather() {
  const runner = chat.runTools({ model, messages: ask("weather"), tools });
  return { text: await runner.finalContent(), cities: cities() };
}

async function weather_streamed() {
  const runner = chat.runTools({ model, messages: ask("weather"), tools, stream: true });
  return { text: await runner.finalContent(), cities: cities() };
}

async function person() {
  const answer = await chat.parse({ model, messages: ask("person"), response_format: person_format });
  return answer.choices[0].message.parsed;
}

async function person_streamed() {
  const answer = await chat.stream({ model, messages: ask("person"), response_format: person_format }).finalChatCompletion();
  return answer.choices[0].message.parsed;
}

async function cut() {
  let text = "";
  const found = await failure(async () => {
    for await (const chunk of await chat.create({ model, messages: ask("cut"), stream: true })) text += chunk.choices[0].delta.content ?? "";
  });
  return { ...found, text };
}

async function cut_in_the_helper() {
  return failure(() => chat.stream({ model, messages: ask("cut") }).finalChatCompletion());
}

async function too_long() {
  return failure(() => chat.create({ model, messages: ask("too_long") }));
}

async function limited() {
  return failure(() => chat.create({ model, messages: ask("limited"), stream: true }));
}

await play(hello, hello_streamed, likes, weather, weather_streamed, person, person_streamed, cut, cut_in_the_helper, too_long, limited);
