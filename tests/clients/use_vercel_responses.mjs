// Vercel's AI SDK on its provider for OpenAI as it is by default, which speaks Responses and refers to stored items by their ids.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, mode, user] = process.argv.slice(2);
const headers = { "X-Memory": mode, "X-Memory-User": user };
const model = createOpenAI({ baseURL, apiKey: "sk-sentinel-4f1d", headers })("m");
globalThis.AI_SDK_LOG_WARNINGS = false; // which would stand between the facts
const cities = [];
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      cities.push(city);
      return "rain";
    },
  }),
};
const common = { model, tools, maxRetries: 0, stopWhen: stepCountIs(5) };
const said = (content) => ({ role: "user", content });

// Reads a stream to its end; what went wrong is one of its parts.
async function read(options) {
  let text = "";
  for await (const part of streamText({ ...common, ...options, onError: () => {} }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "start-step") text = "";
    if (part.type === "text-delta") text += part.text;
  }
  return text;
}

const told = await generateText({ ...common, prompt: "I like tea." });
const talk = [said("I like tea."), ...told.response.messages, said("What do I like?")];
const facts = {
  scene: "all",
  told: told.steps.at(-1).text,
  went_on: (await generateText({ ...common, messages: talk })).text,
  asked: await read({ prompt: "What do I like?" }),
  weather: await read({ prompt: "What is the weather in Oslo?" }),
};
try {
  facts.fault = { instead: await read({ prompt: "Break off, please." }) };
} catch (e) {
  facts.fault = { told: JSON.stringify(e) };
}
console.log(JSON.stringify({ ...facts, cities }));
