// A host in a page: the official client talks to the server, the official bridge to the view, which
// is in a sandbox of another origin. What a test has to see is kept in `window.seen`.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  PostMessageTransport,
  buildAllowAttribute,
  getToolUiResourceUri,
  isToolVisibilityAppOnly,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const UI = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
const SANDBOX = new URLSearchParams(location.search).get("sandbox");

window.seen = { calls: [], sizes: [], contexts: [], errors: [] };

async function connected(path, mode) {
  const client = new Client(
    { name: "host", version: "1" },
    { capabilities: { extensions: UI }, versionNegotiation: { mode } },
  );
  client.onerror = (error) => window.seen.errors.push(String(error));
  await client.connect(new StreamableHTTPClientTransport(new URL(path, location.href)));
  return client;
}

function frame(meta) {
  const made = document.createElement("iframe");
  made.title = "The view";
  made.id = "sandbox";
  made.sandbox = "allow-scripts allow-same-origin";
  made.allow = buildAllowAttribute(meta.permissions);
  made.src = `${SANDBOX}/sandbox.html?csp=${encodeURIComponent(JSON.stringify(meta.csp ?? {}))}`;
  return made;
}

window.open_view = async ({ path, mode = "auto", tool: name, args, theme }) => {
  const client = await connected(path, mode);
  const { tools } = await client.listTools();
  const tool = tools.find((one) => one.name === name);
  const { contents } = await client.readResource({ uri: getToolUiResourceUri(tool) });
  const [page] = contents;
  const meta = page._meta?.ui ?? {};
  const bridge = new AppBridge(
    client,
    { name: "host", version: "1" },
    { serverTools: {}, serverResources: {}, openLinks: {}, logging: {}, updateModelContext: { structuredContent: {} } },
    { hostContext: { theme, toolInfo: { tool }, locale: "en-GB" } },
  );
  const result = await client.callTool({ name, arguments: args });
  const request = client.request.bind(client);
  client.request = (message, ...rest) => {
    if (message.method === "tools/call") {
      const { name, arguments: given } = message.params;
      window.seen.calls.push({ name, arguments: given });
    }
    return request(message, ...rest);
  };
  const view = frame(meta);
  bridge.onsizechange = ({ height }) => {
    window.seen.sizes.push(height);
    view.style.height = `${height}px`;
  };
  bridge.onupdatemodelcontext = async (params) => {
    window.seen.contexts.push(params);
    return {};
  };
  const isInitialized = new Promise((resolve) => (bridge.oninitialized = resolve));
  const isSandboxed = new Promise((resolve) => (bridge.onsandboxready = resolve));
  document.body.replaceChildren(view);
  await bridge.connect(new PostMessageTransport(view.contentWindow, view.contentWindow));
  await isSandboxed;
  await bridge.sendSandboxResourceReady({ html: page.text, csp: meta.csp, permissions: meta.permissions });
  await isInitialized;
  await bridge.sendToolInput({ arguments: args });
  await bridge.sendToolResult(result);
  window.bridge = bridge;
  return {
    app: bridge.getAppVersion(),
    protocol: client.getNegotiatedProtocolVersion?.() ?? null,
    mimeType: page.mimeType,
    meta,
    forTheModel: tools.filter((one) => !isToolVisibilityAppOnly(one)).map((one) => one.name),
  };
};

window.set_theme = (theme) => window.bridge.setHostContext({ theme, toolInfo: undefined });
window.tear_down = () => window.bridge.teardownResource({});
