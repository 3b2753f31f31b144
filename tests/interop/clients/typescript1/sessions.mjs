// The official TypeScript client as it was before 2026-07-28 (@modelcontextprotocol/sdk).

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { main } from "../journey.mjs";

// This client knows messages by their schema.
const SCHEMAS = {
  "elicitation/create": ElicitRequestSchema,
  "sampling/createMessage": CreateMessageRequestSchema,
  "roots/list": ListRootsRequestSchema,
  "notifications/message": LoggingMessageNotificationSchema,
  "notifications/resources/updated": ResourceUpdatedNotificationSchema,
  "notifications/tools/list_changed": ToolListChangedNotificationSchema,
};

await main({
  connect({ url, is_legacy }, capabilities) {
    const Transport = is_legacy ? SSEClientTransport : StreamableHTTPClientTransport;
    const client = new Client({ name: "interop", version: "1" }, { capabilities });
    client.schema = [CallToolResultSchema];
    const transport = new Transport(new URL(url));
    // The client tells its transport alone what was agreed on.
    const agree = transport.setProtocolVersion.bind(transport);
    transport.setProtocolVersion = (version) => agree((client.agreed = version));
    return { client, transport };
  },
  on: (client, method, handle) =>
    client.setNotificationHandler(SCHEMAS[method], ({ params }) => handle(params)),
  answer: (client, method, handle) =>
    client.setRequestHandler(SCHEMAS[method], ({ params }) => handle(params)),
  version: (client) => client.agreed,
});
