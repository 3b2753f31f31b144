// The features of the AI SDK. Takes `{"url", "token"}` as JSON on standard input.

import { text } from "node:stream/consumers";

import { createMCPClient, ElicitationRequestSchema } from "@ai-sdk/mcp";

const { url, token } = JSON.parse(await text(process.stdin));
const client = await createMCPClient({
  transport: { type: "http", url, headers: { Authorization: `Bearer ${token}` } },
  capabilities: { elicitation: {} },
});
client.onElicitationRequest(ElicitationRequestSchema, async () => ({
  action: "accept",
  content: { value: "Ada" },
}));
const tools = await client.tools();
const declared = await tools.declared.execute({});
const greeting = await tools.greet.execute({});
const news = await client.readResource({ uri: "shop://news" });
const letter = await client.getPrompt({ name: "letter", arguments: { topic: "books" } });
await client.close();
console.log(
  JSON.stringify({
    declared: declared.structuredContent,
    resources: news.contents[0].text,
    prompts: letter.messages[0].content.text,
    elicitation: greeting.content[0].text,
  }),
);
