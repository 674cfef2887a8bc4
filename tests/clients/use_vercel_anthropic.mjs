// Vercel's AI SDK on its provider for Anthropic: generateText and streamText, with a tool.
import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { cities, failure, getWeather, headers, model as name, options, play, prompts } from "./scenes.mjs";

const common = { model: createAnthropic({ ...options, headers })(name), maxRetries: 0 };
const tools = { get_weather: tool({ description: "The temperature in a city.", inputSchema: z.object({ city: z.string() }), execute: getWeather }) };
globalThis.AI_SDK_LOG_WARNINGS = false; // which would stand between the facts
const stop = { tool_use: "tool_use", stop: "end_turn" };

async function hello() {
  const answer = await generateText({ ...common, prompt: prompts.hello });
  return { text: answer.text, stop: stop[answer.finishReason] };
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
  return { text: await read(stream), stop: stop[await stream.finishReason] };
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

await play(hello, hello_streamed, likes, weather, weather_streamed, cut, too_long, limited);
