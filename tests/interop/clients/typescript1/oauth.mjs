// The official TypeScript client as it was before 2026-07-28, with its own OAuth.

import { auth } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { main } from "../oauth.mjs";

await main({
  make: (url, options) => ({
    client: new Client({ name: "interop", version: "1" }),
    transport: new StreamableHTTPClientTransport(url, options),
  }),
  // With a refresh token at hand this client refreshes when scopes are missing, which adds none; so
  // its host lets go of the tokens and asks for those scopes.
  async stepUp(provider, serverUrl, scope) {
    provider.invalidateCredentials("tokens");
    await auth(provider, { serverUrl, scope });
  },
  finish: (transport, answer) => transport.finishAuth(answer.get("code")),
});
