// What the node programs share; see scenes.py.
import { readFileSync } from "node:fs";

const [url, memory, user] = process.argv.slice(2);
export const options = { baseURL: url, apiKey: "sk-sentinel-4f1d" };
export const headers = { "X-Memory": memory, "X-Memory-User": user };
export const model = "gpt-4o-mini";
export const prompts = JSON.parse(readFileSync(new URL("prompts.json", import.meta.url), "utf8"));

const asked = [];

export function getWeather({ city }) {
  asked.push(city);
  return { Oslo: 3, Bergen: 7 }[city];
}

// The cities asked for since the last time.
export const cities = () => asked.splice(0).sort();

// The error that `work` ends in: its classes, its code and its status.
export async function failure(work) {
  let done;
  try {
    done = await work();
  } catch (e) {
    const classes = [];
    for (let p = Object.getPrototypeOf(e); p; p = Object.getPrototypeOf(p)) classes.push(p.constructor.name);
    return { classes, code: e.code ?? e.data?.error.code, status: e.status ?? e.statusCode };
  }
  return { instead: String(JSON.stringify(done)) };
}

export async function play(...scenes) {
  for (const scene of scenes) {
    let facts;
    try {
      facts = await scene();
    } catch (e) {
      facts = { raised: e.stack };
    }
    console.log(JSON.stringify({ scene: scene.name, ...facts }));
  }
}
