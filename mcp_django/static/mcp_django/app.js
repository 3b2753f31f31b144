// The page's side of MCP Apps (SEP-1865, 2026-01-26): JSON-RPC over postMessage with the host.
//
//   mcp.on("result", (result) => …)   also "input", "partial", "cancelled", "context", "teardown";
//                                     the latest event is delivered immediately
//   await mcp.callTool("close_notice", { number: 3 })      a tool of the same server
//   await mcp.readResource("notices://EGLL")
//   await mcp.openLink(url), mcp.sendMessage(text), mcp.updateModelContext({ … }),
//   await mcp.requestDisplayMode("fullscreen"), mcp.request(method, params)
//   mcp.log("info", data), mcp.ready (a promise), mcp.host, mcp.context
//
// A request that fails or times out rejects with an Error.
const mcp = (() => {
  const PROTOCOL = "2026-01-26";
  const SECONDS = 300; // a tool may send an elicitation to its user
  const EVENTS = {
    "ui/notifications/tool-input": "input",
    "ui/notifications/tool-input-partial": "partial",
    "ui/notifications/tool-result": "result",
    "ui/notifications/tool-cancelled": "cancelled",
    "ui/notifications/host-context-changed": "context",
  };
  const listeners = {};
  const latest = {};
  const pending = new Map();
  const api = { host: null, context: {} };
  let lastId = 0;
  let isReady;
  let isRefused;
  api.ready = new Promise((resolve, reject) => {
    isReady = resolve;
    isRefused = reject;
  });
  // Prevents an unhandled rejection if the page does not use the promise.
  api.ready.catch(() => {});

  const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");

  api.notify = (method, params = {}) => post({ method, params });

  api.request = (method, params = {}, { seconds = SECONDS } = {}) =>
    new Promise((resolve, reject) => {
      const id = ++lastId;
      const timer = setTimeout(() => {
        pending.delete(id);
        reject(new Error(`${method}: no answer within ${seconds} s`));
      }, seconds * 1000);
      pending.set(id, { resolve, reject, timer });
      post({ id, method, params });
    });

  api.on = (event, listener) => {
    (listeners[event] ??= []).push(listener);
    if (event in latest) listener(latest[event]);
  };

  const tell = (event, value) => {
    latest[event] = value;
    for (const listener of listeners[event] ?? []) listener(value);
  };

  const take = (context) => {
    Object.assign(api.context, context);
    const root = document.documentElement;
    if (context.theme) {
      root.dataset.theme = context.theme;
      root.style.colorScheme = context.theme;
    }
    for (const [name, value] of Object.entries(context.styles?.variables ?? {})) {
      if (name.startsWith("--") && value !== undefined) root.style.setProperty(name, value);
    }
    const fonts = context.styles?.css?.fonts;
    if (fonts) {
      const id = "mcp-host-fonts";
      const style = document.getElementById(id) ?? document.createElement("style");
      style.id = id;
      style.textContent = fonts;
      document.head.append(style);
    }
    if (context.locale) root.lang = context.locale;
    tell("context", api.context);
  };

  const answer = async (message) => {
    if (message.method === "ping") return {};
    if (message.method === "ui/resource-teardown") {
      tell("teardown", message.params ?? {});
      return {};
    }
    throw Object.assign(new Error(`Method not found: ${message.method}`), { code: -32601 });
  };

  const settle = ({ id, result, error }) => {
    const waiting = pending.get(id);
    if (!waiting) return;
    pending.delete(id);
    clearTimeout(waiting.timer);
    if (error) waiting.reject(Object.assign(new Error(error.message), error));
    else waiting.resolve(result);
  };

  const receive = ({ source, data }) => {
    // Ignore messages of other windows, such as frames within the page.
    if (source !== window.parent || data?.jsonrpc !== "2.0") return;
    if (!data.method) return settle(data);
    if ("id" in data) {
      answer(data).then(
        (result) => post({ id: data.id, result }),
        ({ code = -32603, message }) => post({ id: data.id, error: { code, message } }),
      );
      return;
    }
    const event = EVENTS[data.method];
    if (event === "context") take(data.params ?? {});
    else if (event === "input") tell(event, data.params?.arguments ?? {});
    else if (event === "partial") tell(event, data.params?.arguments ?? {});
    else if (event) tell(event, data.params ?? {});
  };

  const watchSize = () => {
    let told = "";
    const measure = () => {
      const root = document.documentElement;
      // Measure the height of the content, not of the frame.
      const kept = root.style.height;
      root.style.height = "max-content";
      const height = Math.ceil(root.getBoundingClientRect().height);
      root.style.height = kept;
      const size = { width: Math.ceil(window.innerWidth), height };
      if (told === JSON.stringify(size)) return;
      told = JSON.stringify(size);
      api.notify("ui/notifications/size-changed", size);
    };
    let isPlanned = false;
    const plan = () => {
      if (isPlanned) return;
      isPlanned = true;
      requestAnimationFrame(() => {
        isPlanned = false;
        measure();
      });
    };
    const observer = new ResizeObserver(plan);
    observer.observe(document.documentElement);
    observer.observe(document.body);
    plan();
  };

  api.start = (name) => {
    // The page was opened directly in a browser, so there is no host.
    if (window.parent === window) return;
    window.addEventListener("message", receive);
    const begin = async () => {
      try {
        api.host = await api.request("ui/initialize", {
          appInfo: { name, version: "1" },
          appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
          protocolVersion: PROTOCOL,
        });
      } catch (error) {
        return isRefused(error);
      }
      take(api.host.hostContext ?? {});
      api.notify("ui/notifications/initialized");
      watchSize();
      isReady(api.host);
    };
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
    else begin();
  };

  api.callTool = (name, args = {}, options) =>
    api.request("tools/call", { name, arguments: args }, options);
  api.readResource = (uri, options) => api.request("resources/read", { uri }, options);
  api.openLink = (url) => api.request("ui/open-link", { url });
  api.sendMessage = (text) =>
    api.request("ui/message", { role: "user", content: [{ type: "text", text }] });
  api.updateModelContext = (structuredContent) =>
    api.request("ui/update-model-context", { structuredContent });
  api.requestDisplayMode = (mode) => api.request("ui/request-display-mode", { mode });
  api.log = (level, data) => api.notify("notifications/message", { level, data });
  return api;
})();
