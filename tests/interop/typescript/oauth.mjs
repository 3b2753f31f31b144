// The official TypeScript client of today with its own OAuth.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { main } from "../clients/oauth.mjs";

await main({
  make: (url, options, { mode }) => ({
    client: new Client({ name: "interop", version: "1" }, { versionNegotiation: { mode } }),
    transport: new StreamableHTTPClientTransport(url, options),
  }),
  finish: (transport, answer) => transport.finishAuth(answer),
});
