// Vercel's AI SDK: generateText and streamText, with a tool and with an object, on its provider for OpenAI.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { cities, failure, getWeather, headers, model as name, options, play, prompts } from "./scenes.mjs";

const common = { model: createOpenAI({ ...options, headers }).chat(name), maxRetries: 0 };
const tools = { get_weather: tool({ description: "The temperature in a city.", inputSchema: z.object({ city: z.string() }), execute: getWeather }) };
const output = Output.object({ schema: z.object({ name: z.string(), age: z.number() }) });

async function hello() {
  const answer = await generateText({ ...common, prompt: prompts.hello });
  return { text: answer.text, tokens: answer.totalUsage.totalTokens };
}

// Reads a stream to its end. What went wrong is one of its parts, thrown here as a user of the parts would.
async function read(stream, seen = () => {}) {
  let text = "";
  for await (const part of stream.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "start-step") text = "";
    if (part.type === "text-delta") seen((text += part.text));
  }
  return text;
}

async function hello_streamed() {
  const stream = streamText({ ...common, prompt: prompts.hello });
  const text = await read(stream);
  return { text, tokens: (await stream.totalUsage).totalTokens };
}

async function likes() {
  const answer = await generateText({ ...common, prompt: prompts.hello });
  const messages = [{ role: "user", content: prompts.hello }, ...answer.response.messages, { role: "user", content: prompts.likes }];
  return { text: (await generateText({ ...common, messages })).text };
}

async function weather() {
  const answer = await generateText({ ...common, tools, prompt: prompts.weather, stopWhen: stepCountIs(5) });
  return { text: answer.text, cities: cities() };
}

async function weather_streamed() {
  return { text: await read(streamText({ ...common, tools, prompt: prompts.weather, stopWhen: stepCountIs(5) })), cities: cities() };
}

async function person() {
  return (await generateText({ ...common, output, prompt: prompts.person })).output;
}

async function person_streamed() {
  const stream = streamText({ ...common, output, prompt: prompts.person });
  await read(stream);
  return stream.output;
}

async function cut() {
  let text = "";
  const found = await failure(() => read(streamText({ ...common, prompt: prompts.cut, onError: () => {} }), (all) => (text = all)));
  return { ...found, text };
}

async function too_long() {
  return failure(() => generateText({ ...common, prompt: prompts.too_long }));
}

async function limited() {
  return failure(() => read(streamText({ ...common, prompt: prompts.limited, onError: () => {} })));
}

await play(hello, hello_streamed, likes, weather, weather_streamed, person, person_streamed, cut, too_long, limited);
