// The official TypeScript client over stdio. Takes the ways to start each server as one JSON object
// on standard input, starts them, does everything that a host would, and prints what it saw.

import { text } from "node:stream/consumers";

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const REVISION = "2026-07-28";
const EVERYTHING = { elicitation: { form: {} }, sampling: {}, roots: {} };
// Every airfield, and short legs between them: seconds of work with progress from early on.
const LONG_SEARCH = {
  name: "find_route",
  arguments: { origin: "LHR", destination: "SYD", max_leg_km: 900, stops: "any" },
};

const servers = JSON.parse(await text(process.stdin));

async function connect(server, { mode = { pin: REVISION }, answers = [], said = [] } = {}) {
  const transport = new StdioClientTransport({ ...server, stderr: "ignore" });
  const client = new Client(
    { name: "interop", version: "1" },
    { capabilities: EVERYTHING, versionNegotiation: { mode } },
  );
  client.setRequestHandler("elicitation/create", () => answers.shift());
  client.setRequestHandler("sampling/createMessage", () => said.shift());
  client.setRequestHandler("roots/list", () => ({ roots: [{ uri: "file:///home/ada" }] }));
  const errors = [];
  // Of lines that come together the client takes a response before the progress that precedes it,
  // and then misses whom that was for.
  client.onerror = (error) => {
    if (!/progress notification for an unknown token/.test(error)) errors.push(String(error));
  };
  await client.connect(transport);
  return { client, errors };
}

async function failure(promise) {
  try {
    return { answered: await promise };
  } catch (error) {
    const { name, code, message } = error;
    return { name, code, message };
  }
}

const distance = async (client) => {
  const result = await client.callTool({
    name: "great_circle_distance",
    arguments: { origin: "JFK", destination: "LHR" },
  });
  return result.structuredContent.distance_km;
};

async function work(mode) {
  const { client, errors } = await connect(servers.guest, { mode });
  const progress = [];
  const seen = {
    version: client.getNegotiatedProtocolVersion(),
    era: client.getProtocolEra(),
    server: client.getServerVersion(),
    tools: (await client.listTools()).tools.map(({ name }) => name),
    distance: await distance(client),
    country: await client.callTool(
      { name: "summarize_country", arguments: { country: "US" } },
      { onprogress: (one) => progress.push(one) },
    ),
    image: await client.callTool({ name: "airport_map", arguments: { place: "LHR" } }),
    airport: await client.readResource({ uri: "airports://VHHH" }),
    briefing: await client.getPrompt({
      name: "shift_briefing",
      arguments: { airport: "ZRH", shift: "early" },
    }),
    completed: await client.complete({
      ref: { type: "ref/prompt", name: "diversion_plan" },
      argument: { name: "airport", value: "zrh" },
    }),
    unknown: await failure(client.callTool({ name: "publish_notice", arguments: {} })),
  };
  await client.close();
  return { ...seen, progress, errors };
}

async function leave() {
  const { client, errors } = await connect(servers.guest);
  const controller = new AbortController();
  const left = await failure(
    client.callTool(LONG_SEARCH, {
      signal: controller.signal,
      onprogress: () => controller.abort("enough"),
    }),
  );
  const next = await distance(client);
  await client.close();
  return { left, next, errors };
}

async function listen() {
  const accept = { action: "accept", content: { confirmed: true } };
  const { client, errors } = await connect(servers.desk, { answers: [accept] });
  const heard = Promise.withResolvers();
  client.setNotificationHandler("notifications/resources/updated", ({ params }) =>
    heard.resolve(params.uri),
  );
  const subscription = await client.listen({ resourceSubscriptions: ["notices://ENBR"] });
  const published = await client.callTool({
    name: "publish_notice",
    arguments: { airport: "BGO", title: "Ice", text: "Brakes are poor." },
  });
  const uri = await heard.promise;
  await subscription.close();
  const after = (await client.listTools()).tools.length > 0;
  await client.close();
  return {
    honored: subscription.honoredFilter,
    uri,
    number: published.structuredContent.number,
    closed: await subscription.closed,
    after,
    errors,
  };
}

// The server gets SIGTERM, as from a process manager, while the client listens.
async function dismissed() {
  const { client, errors } = await connect(servers.guest);
  const subscription = await client.listen({ toolsListChanged: true });
  process.kill(client.transport.pid, "SIGTERM");
  const closed = await subscription.closed;
  await client.close();
  return { closed, errors };
}

const turned_away = (mode) =>
  failure(connect(servers.nobody, { mode }).then(({ client }) => client.listTools()));

async function ask() {
  const { client, errors } = await connect(servers.asking, {
    answers: [{ action: "accept", content: { confirmed: true, reason: "late" } }],
    said: [
      {
        role: "assistant",
        content: { type: "text", text: "Short." },
        model: "small",
        stopReason: "endTurn",
      },
    ],
  });
  const tool = (name, args) => client.callTool({ name, arguments: args });
  const seen = {
    refund: await tool("refund", { order: 7 }),
    summary: await tool("summarize", { text: "Long." }),
  };
  await client.close();
  return { ...seen, errors };
}

const seen = {
  auto: await work("auto"),
  pinned: await work({ pin: REVISION }),
  leave: await leave(),
  listen: await listen(),
  dismissed: await dismissed(),
  turned_away: await turned_away("auto"),
  ask: await ask(),
};
console.log(JSON.stringify(seen));
