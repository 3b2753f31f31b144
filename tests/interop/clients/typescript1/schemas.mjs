// The official TypeScript client as it was before 2026-07-28, which compiles the output schemas of
// a list as soon as it has it.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { main } from "../schemas.mjs";

await main({
  async connect(url, mode, fetch) {
    const client = new Client({ name: "interop", version: "1" });
    const transport = new StreamableHTTPClientTransport(url, { fetch });
    await client.connect(transport);
    client.agreed = transport.protocolVersion;
    return client;
  },
  version: (client) => client.agreed,
  list: (client) => client.listTools(),
  call: (client, params) => client.callTool(params),
});
