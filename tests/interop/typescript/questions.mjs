// The official TypeScript client against a server that asks. Takes the address of each mount as one
// JSON object on standard input, answers every kind of question at each, and prints what it saw.

import { text } from "node:stream/consumers";

import {
  Client,
  LOG_LEVEL_META_KEY,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";

const REVISION = "2026-07-28";
const EVERYTHING = {
  elicitation: { form: {}, url: {} },
  sampling: { tools: {} },
  roots: {},
};
const ROOTS = [{ uri: "file:///home/ada/my%20papers", name: "Papers" }];

const mounts = JSON.parse(await text(process.stdin));

const accept = (content) => ({ action: "accept", content });
const says = (words) => ({
  role: "assistant",
  content: { type: "text", text: words },
  model: "small",
  stopReason: "endTurn",
});

// A client whose user gives `answers` in order, and whose model says `said` in order. What has
// functions for elements is told the question.
async function connect(url, { answers = [], said = [], capabilities = EVERYTHING, ...options } = {}) {
  const statuses = [];
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    fetch: async (...request) => {
      const response = await fetch(...request);
      statuses.push(response.status);
      return response;
    },
  });
  const client = new Client(
    { name: "interop", version: "1" },
    { capabilities, versionNegotiation: { mode: { pin: REVISION } }, ...options },
  );
  const asked = [];
  const handle = (method, answer) =>
    client.setRequestHandler(method, (request, { mcpReq }) => {
      asked.push({ key: mcpReq.id, method, params: request.params });
      return answer(request);
    });
  const next = (list) => async (request) => {
    const found = list[asked.filter(({ method }) => method === request.method).length - 1];
    return typeof found === "function" ? found(request) : found;
  };
  if (capabilities.elicitation) handle("elicitation/create", next(answers));
  if (capabilities.sampling) handle("sampling/createMessage", next(said));
  if (capabilities.roots) handle("roots/list", () => ({ roots: ROOTS }));
  const errors = [];
  client.onerror = (error) => errors.push(String(error));
  await client.connect(transport);
  return { client, asked, statuses, errors };
}

async function failure(promise) {
  try {
    return { result: await promise };
  } catch (error) {
    const { name, code, data, message } = error;
    return { failed: { name, code, data, message } };
  }
}

// One conversation of a client with answers of its own.
async function talk(url, options, ask) {
  const { client, ...heard } = await connect(url, options);
  const outcome = await failure(ask(client));
  await client.close();
  return { ...heard, ...outcome };
}

const tool = (name, args) => (client) => client.callTool({ name, arguments: args });

async function open({ params }) {
  const page = await fetch(params.url);
  return { action: page.ok ? "accept" : "cancel" };
}

const TRIP = {
  traveler: "Ada Lovelace",
  seats: 2,
  cabin: "business",
  leaves: "2026-08-01",
  boards: "2026-08-01T10:00:00Z",
  is_flexible: true,
  budget: 120.5,
  extras: ["wifi", "meal"],
};

const LOOKED_UP = {
  role: "assistant",
  content: ["ZRH", "AMS"].map((code, n) => ({
    type: "tool_use",
    id: `call-${n}`,
    name: "altitude",
    input: { code },
  })),
  model: "small",
  stopReason: "toolUse",
};

async function forms(url) {
  const refund = (answer) => talk(url, { answers: [answer] }, tool("refund", { order: 7 }));
  return {
    accepted: await refund(accept({ confirmed: true, reason: "late" })),
    declined: await refund({ action: "decline" }),
    canceled: await refund({ action: "cancel" }),
    caught: await talk(url, { answers: [{ action: "cancel" }] }, tool("greet")),
    empty: await talk(url, { answers: [accept()] }, tool("agree")),
    every_kind: await talk(url, { answers: [accept(TRIP)] }, tool("book")),
    labels: await talk(
      url,
      { answers: [accept({ about: "seat", email: "ada@example.com" })] },
      tool("complain"),
    ),
    corrected: await talk(
      url,
      { answers: [accept({ value: "A" }), accept({ value: "Ada" })] },
      tool("greet"),
    ),
    defaults: await talk(
      url,
      {
        answers: [accept({ confirmed: true })],
        capabilities: { elicitation: { form: { applyDefaults: true } } },
      },
      tool("refund", { order: 8 }),
    ),
    hopeless: await talk(
      url,
      { answers: Array(99).fill(accept({ value: "A" })), inputRequired: { maxRounds: 99 } },
      tool("greet"),
    ),
  };
}

async function model(url) {
  return {
    said: await talk(url, { said: [says("Short.")] }, tool("summarize", { text: "Long." })),
    tools: await talk(url, { said: [LOOKED_UP, says("Zurich.")] }, tool("compare_altitudes")),
  };
}

async function rounds(url) {
  return {
    one: await talk(
      url,
      { answers: [accept({ value: "Ada" }), accept({ value: "metric" })], said: [says("hello")] },
      tool("survey"),
    ),
    several: await talk(
      url,
      { answers: [accept({ value: "Ada" }), accept({ value: "metric" })], said: [says("Welcome")] },
      tool("onboard"),
    ),
    headers: await talk(url, { answers: [accept()] }, async (client) => {
      await client.listTools();
      return client.callTool({ name: "ship", arguments: { region: "north" } });
    }),
  };
}

async function pages(url) {
  const consent = { action: "accept" };
  return {
    visited: await talk(url, { answers: [open] }, tool("connect_account")),
    later: await talk(url, { answers: [consent, open] }, tool("connect_account")),
    declined: await talk(url, { answers: [{ action: "decline" }] }, tool("connect_account")),
  };
}

async function others(url) {
  return {
    prompt: await talk(url, { answers: [accept({ value: "warm" })] }, (client) =>
      client.getPrompt({ name: "letter", arguments: { topic: "fog" } }),
    ),
    declined: await talk(url, { answers: [{ action: "decline" }] }, (client) =>
      client.getPrompt({ name: "letter", arguments: { topic: "fog" } }),
    ),
    // What was read with an answer is not kept for the next reader.
    resource: await talk(
      url,
      { answers: [accept({ value: "Oslo" }), accept({ value: "Rome" })] },
      async (client) => [
        await client.readResource({ uri: "asking://weather" }),
        await client.readResource({ uri: "asking://weather" }),
      ],
    ),
    template: await talk(url, { answers: [accept({ value: "imperial" })] }, (client) =>
      client.readResource({ uri: "asking://rooms/7" }),
    ),
  };
}

async function reports(url, name) {
  const heard = [];
  const logged = [];
  const outcome = await talk(url, { answers: [accept({ value: "large" })] }, (client) => {
    client.setNotificationHandler("notifications/message", ({ params }) =>
      logged.push(params.data),
    );
    return client.callTool(
      { name, _meta: { [LOG_LEVEL_META_KEY]: "info" } },
      { onprogress: (one) => heard.push(one) },
    );
  });
  return { ...outcome, heard, logged };
}

async function poorer(url) {
  const only = (capabilities, name, args) => talk(url, { capabilities }, tool(name, args));
  return {
    nothing: await only({}, "refund", { order: 7 }),
    empty_form: await only({ elicitation: {} }, "offers"),
    only_pages: await only({ elicitation: { url: {} } }, "refund", { order: 7 }),
    only_forms: await only({ elicitation: { form: {} } }, "connect_account"),
    no_tools: await only({ sampling: {} }, "compare_altitudes"),
  };
}

// The rounds by hand, each over a connection of its own and the second at the other mount.
async function by_hand(url, elsewhere) {
  const first = await talk(url, {}, (client) =>
    client.callTool({ name: "greet" }, { allowInputRequired: true }),
  );
  const { inputRequests, requestState } = first.result;
  const [key] = Object.keys(inputRequests);
  const inputResponses = { [key]: accept({ value: "Ada" }) };
  const go_on = (at, state) =>
    talk(at, {}, (client) =>
      client.callTool(
        { name: "greet", inputResponses, requestState: state },
        { allowInputRequired: true },
      ),
    );
  return {
    first,
    second: await go_on(elsewhere, requestState),
    forged: await go_on(url, `x${requestState}`),
  };
}

const seen = {};
for (const [mount, url] of Object.entries(mounts)) {
  const elsewhere = Object.values(mounts).find((other) => other !== url);
  seen[mount] = {
    offers: await talk(url, {}, tool("offers")),
    forms: await forms(url),
    model: await model(url),
    folders: await talk(url, {}, tool("folders")),
    rounds: await rounds(url),
    pages: await pages(url),
    others: await others(url),
    pack: await reports(url, "pack"),
    pack_later: await reports(url, "pack_later"),
    poorer: await poorer(url),
    by_hand: await by_hand(url, elsewhere),
  };
}
console.log(JSON.stringify(seen));
