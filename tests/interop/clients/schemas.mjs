// Whether a TypeScript client takes the list and the results of `tests.interop.schema_site`, and
// how: `schemas.py` in another language. Where the client refuses the whole list, it is given one
// of a single tool before each call, so that it is known which tools it refuses.

import { text } from "node:stream/consumers";

const MAX_ERROR = 600;
const reason = (error) => String(error).slice(0, MAX_ERROR);

// `connect` returns a connected client; the others are what the client calls so.
export async function main({ connect, version, list, call }) {
  const { calls, targets } = JSON.parse(await text(process.stdin));

  async function visit([key, { url, mode }]) {
    let only = null;
    async function narrowed(...request) {
      const response = await fetch(...request);
      if (only === null || !response.headers.get("content-type")?.startsWith("application/json")) {
        return response;
      }
      const answer = await response.json();
      const tools = answer.result?.tools?.filter(({ name }) => name === only);
      if (tools) answer.result.tools = tools;
      return new Response(JSON.stringify(answer), response);
    }

    const client = await connect(new URL(url), mode, narrowed);
    const seen = { revision: version(client), list: [], refused: null, calls: {} };
    try {
      seen.list = (await list(client)).tools.map(({ name }) => name);
    } catch (error) {
      seen.refused = reason(error);
    }
    for (const [name, values] of Object.entries(calls)) {
      try {
        if (seen.refused !== null) {
          only = name;
          await list(client);
        }
        const result = await call(client, { name, arguments: values });
        const texts = result.content.map((block) => block.text);
        seen.calls[name] = { structured: result.structuredContent, texts, failed: result.isError ?? false };
      } catch (error) {
        seen.calls[name] = { error: reason(error) };
      }
    }
    await client.close();
    return [key, seen];
  }

  const seen = await Promise.all(Object.entries(targets).map(visit));
  process.stdout.write(JSON.stringify(Object.fromEntries(seen)));
}
