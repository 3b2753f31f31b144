// The official TypeScript client, which speaks the handshake where it finds it needed.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { main } from "../clients/journey.mjs";

await main({
  connect({ url, is_legacy, mode }, capabilities) {
    const Transport = is_legacy ? SSEClientTransport : StreamableHTTPClientTransport;
    const client = new Client(
      { name: "interop", version: "1" },
      { capabilities, versionNegotiation: { mode: is_legacy ? "legacy" : mode } },
    );
    client.schema = [];
    return { client, transport: new Transport(new URL(url)) };
  },
  on: (client, method, handle) =>
    client.setNotificationHandler(method, ({ params }) => handle(params ?? {})),
  answer: (client, method, handle) =>
    client.setRequestHandler(method, ({ params }) => handle(params)),
  version: (client) => client.getNegotiatedProtocolVersion(),
});
