// The official TypeScript client against the demo. Takes the addresses and tokens as one JSON
// object on standard input, does everything that a host would, and prints what it saw as another.

import { text } from "node:stream/consumers";

import {
  Client,
  LOG_LEVEL_META_KEY,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";

const REVISION = "2026-07-28";
// Every airfield, and short legs between them: seconds of work with progress from early on.
const LONG_SEARCH = {
  name: "find_route",
  arguments: { origin: "LHR", destination: "SYD", max_leg_km: 900, stops: "any" },
};
// Seconds less, with an answer.
const SEARCH = { ...LONG_SEARCH, arguments: { ...LONG_SEARCH.arguments, max_leg_km: 300 } };

const demo = JSON.parse(await text(process.stdin));

async function connect(url, token, mode = "auto") {
  const statuses = [];
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: token ? { Authorization: `Bearer ${token}` } : {} },
    fetch: async (...request) => {
      const response = await fetch(...request);
      statuses.push([response.status, response.headers.get("www-authenticate")]);
      return response;
    },
  });
  const client = new Client(
    { name: "interop", version: "1" },
    { versionNegotiation: { mode } },
  );
  const errors = [];
  client.onerror = (error) => errors.push(String(error));
  try {
    await client.connect(transport);
  } catch (error) {
    error.statuses = statuses;
    throw error;
  }
  return { client, statuses, errors };
}

async function failure(promise) {
  try {
    return { answered: await promise };
  } catch (error) {
    const { name, code, data, message, statuses } = error;
    return { name, code, data, message, statuses };
  }
}

const distance = async (client) => {
  const result = await client.callTool({
    name: "great_circle_distance",
    arguments: { origin: "JFK", destination: "LHR" },
  });
  return result.structuredContent.distance_km;
};

async function introduce(mode) {
  const { client, statuses } = await connect(demo.url, demo.token, mode);
  const seen = {
    version: client.getNegotiatedProtocolVersion(),
    era: client.getProtocolEra(),
    server: client.getServerVersion(),
    instructions: client.getInstructions(),
    capabilities: client.getServerCapabilities(),
  };
  await client.close();
  return { ...seen, statuses };
}

async function list(client) {
  return {
    tools: (await client.listTools()).tools,
    resources: (await client.listResources()).resources,
    templates: (await client.listResourceTemplates()).resourceTemplates,
    prompts: (await client.listPrompts()).prompts,
  };
}

async function call(client) {
  const progress = [];
  const onprogress = (one) => progress.push(one);
  const tool = (name, args, options) => client.callTool({ name, arguments: args }, options);
  const country = await tool("summarize_country", { country: "US" }, { onprogress });
  return {
    distance: await tool("great_circle_distance", { origin: "JFK", destination: "LHR" }),
    country,
    progress,
    image: await tool("airport_map", { place: "LHR" }),
    failed: await tool("find_route", { origin: "JFK", destination: "NZSP", max_leg_km: 500 }),
    refused: await tool("nearest_airports", { latitude: 91, longitude: 0 }),
    unknown: await failure(tool("publish_notice", {})),
    logged: await client.callTool({
      name: "search_airports",
      arguments: { query: "Heathrow" },
      _meta: { [LOG_LEVEL_META_KEY]: "emergency" },
    }),
  };
}

async function read(client, statuses) {
  const before = statuses.length;
  const airport = await client.readResource({ uri: "airports://VHHH" });
  const again = await client.readResource({ uri: "airports://VHHH" });
  const requests = statuses.length - before;
  return {
    about: await client.readResource({ uri: "airports://about" }),
    airport,
    again,
    requests,
    missing: await failure(client.readResource({ uri: "airports://QQQ" })),
  };
}

async function prompt(client) {
  const get = (name, args) => client.getPrompt({ name, arguments: args });
  return {
    briefing: await get("shift_briefing", { airport: "ZRH", shift: "early" }),
    unknown: await failure(get("lullaby", {})),
    incomplete: await failure(get("shift_briefing", { airport: "ZRH" })),
  };
}

async function complete(client) {
  const values = async (ref, name, value) =>
    (await client.complete({ ref, argument: { name, value } })).completion.values;
  return {
    template: await values({ type: "ref/resource", uri: "airports://{code}" }, "code", "lh"),
    prompt: await values({ type: "ref/prompt", name: "diversion_plan" }, "airport", "zrh"),
  };
}

async function listen(client) {
  const staff = await connect(demo.staff_url, demo.staff_token);
  const heard = Promise.withResolvers();
  client.setNotificationHandler("notifications/resources/updated", ({ params }) =>
    heard.resolve(params.uri),
  );
  const subscription = await client.listen({ resourceSubscriptions: ["notices://ESSA"] });
  const published = await staff.client.callTool({
    name: "publish_notice",
    arguments: { airport: "ARN", title: "Ice", text: "Brakes are poor." },
  });
  const uri = await heard.promise;
  const notices = await client.readResource({ uri: "notices://ESSA" });
  await subscription.close();
  await staff.client.close();
  return {
    honored: subscription.honoredFilter,
    uri,
    published: published.structuredContent,
    notices: JSON.parse(notices.contents[0].text).notices,
    closed: await subscription.closed,
  };
}

async function interleave(client) {
  const other = await connect(demo.url, demo.token);
  const begun = Promise.withResolvers();
  const finished = [];
  const searching = client
    .callTool(SEARCH, { onprogress: () => begun.resolve() })
    .then((result) => {
      finished.push("search");
      return result;
    });
  // The search has begun and has further to go.
  await begun.promise;
  const measured = await distance(other.client);
  finished.push("distance");
  const { stops } = (await searching).structuredContent;
  await other.client.close();
  return { finished, measured, last: stops.at(-1).icao };
}

async function leave(client) {
  const controller = new AbortController();
  // Progress that is on its way when the client leaves is for nobody any more, and no mistake.
  const note = client.onerror;
  client.onerror = (error) => {
    if (!/progress notification for an unknown token/.test(error)) note(error);
  };
  const left = await failure(
    client.callTool(LONG_SEARCH, {
      signal: controller.signal,
      onprogress: () => controller.abort("enough"),
    }),
  );
  return { left, next: await distance(client) };
}

const { client, statuses, errors } = await connect(demo.url, demo.token);
const seen = {
  auto: await introduce("auto"),
  pinned: await introduce({ pin: REVISION }),
  list: await list(client),
  call: await call(client),
  read: await read(client, statuses),
  prompt: await prompt(client),
  complete: await complete(client),
  listen: await listen(client),
  interleave: await interleave(client),
  leave: await leave(client),
  turned_away: {
    nobody: await failure(connect(demo.url, null)),
    stranger: await failure(connect(demo.url, "mcp_wrong")),
    guest: await failure(connect(demo.staff_url, demo.token)),
  },
};
await client.close();
console.log(JSON.stringify({ ...seen, statuses, errors }));
