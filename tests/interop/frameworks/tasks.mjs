// The tasks of the official TypeScript client. Takes `{"url", "token"}` as JSON on standard input.

import { text } from "node:stream/consumers";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { url, token } = JSON.parse(await text(process.stdin));
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const client = new Client({ name: "interop", version: "1" }, { capabilities: { tasks: {} } });
await client.connect(transport);
// The client learns from the list which tools run as tasks.
await client.listTools();
const seen = {};
for await (const message of client.experimental.tasks.callToolStream({ name: "report" })) {
  if (message.type === "taskCreated") seen.created = message.task.taskId !== "";
  if (message.type === "result") seen.tasks = message.result.content[0].text;
}
await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));
