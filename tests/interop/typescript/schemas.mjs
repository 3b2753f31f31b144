// The official TypeScript client, which validates structured content.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { main } from "../clients/schemas.mjs";

await main({
  async connect(url, mode, fetch) {
    const client = new Client({ name: "interop", version: "1" }, { versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(url, { fetch }));
    return client;
  },
  version: (client) => client.getNegotiatedProtocolVersion(),
  list: (client) => client.listTools(undefined, { cacheMode: "refresh" }),
  call: (client, params) => client.callTool(params),
});
