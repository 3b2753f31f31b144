// Everything that a session can do, once, with any TypeScript client: `journey.py` in another
// language. A traveler hides what the clients call things.

import { text } from "node:stream/consumers";

const WATCHED = "site://board";
// How often it is looked whether nothing comes any more.
const ROUNDS = 5;

// What a user and a model answer, and what a client was told without asking. `answers` are the
// user's, in order: the content of a form, or null for one who declines.
class Host {
  answers = [];
  questions = [];
  logged = [];
  updated = [];
  #waiting = new Map();

  elicit({ message, mode }) {
    this.questions.push(message);
    const content = this.answers.shift();
    if (content === null) return { action: "decline" };
    return mode === "url" ? { action: "accept" } : { action: "accept", content };
  }

  sample({ messages }) {
    this.questions.push(messages[0].content.text);
    return { role: "assistant", content: { type: "text", text: "Short." }, model: "small" };
  }

  roots() {
    return { roots: [{ uri: "file:///home/ada" }] };
  }

  log({ level, data }) {
    this.logged.push([level, data]);
  }

  // The next time that something happens.
  next(event) {
    const { promise, resolve } = Promise.withResolvers();
    this.#waiting.set(event, resolve);
    return promise;
  }

  happened(event) {
    this.#waiting.get(event)?.();
  }

  update(uri) {
    this.updated.push(uri);
    this.happened("updated");
  }
}

async function questions(traveler, host) {
  host.answers = [{ value: "Ada" }];
  const greeted = await traveler.call("greet", {});
  // What is left where nobody was asked.
  host.answers = [null];
  const declined = await traveler.call("greet", {});
  host.answers = [{}];
  const agreed = await traveler.call("consent", {});
  return {
    greeted,
    declined,
    agreed,
    summarized: await traveler.call("summarize", { text: "Long." }),
    folders: await traveler.call("folders", {}),
    asked: host.questions,
  };
}

async function logs(traveler, host) {
  const found = [];
  for (const level of [null, "debug", "error"]) {
    host.logged = [];
    if (level !== null) await traveler.setLevel(level);
    await traveler.call("narrate", {});
    found.push(host.logged);
  }
  const [logged, logged_at_debug, logged_at_error] = found;
  return { logged, logged_at_debug, logged_at_error };
}

async function rearrange(traveler, host) {
  const rearranged = host.next("rearranged");
  await traveler.call("rearrange", {});
  await rearranged;
}

async function changes(traveler, host) {
  await traveler.subscribe(WATCHED);
  const heard = host.next("updated");
  await traveler.call("repaint", {});
  await heard;
  const [updated] = host.updated;
  await traveler.unsubscribe(WATCHED);
  for (let round = 0; round < ROUNDS; round++) {
    // What was under way still arrives. All changes travel on one stream, in their order.
    await rearrange(traveler, host);
    host.updated = [];
    await traveler.call("repaint", {});
    await rearrange(traveler, host);
    if (host.updated.length === 0) break;
  }
  return { updated, updated_later: host.updated.length };
}

async function cancellation(traveler, mark) {
  await traveler.callAndCancel("wait", { mark });
  const { text: stopped } = await traveler.call("has_stopped", { mark });
  return { stopped };
}

async function journey(traveler, host, mark) {
  const progress = [];
  await traveler.ping();
  return {
    ...(await traveler.introduce()),
    tools: await traveler.tools(),
    added: await traveler.call("add", { first: 2, second: 3 }),
    unknown: await traveler.call("subtract", {}),
    board: await traveler.read(WATCHED),
    letter: await traveler.prompt("letter", { topic: "fog" }),
    suggested: await traveler.complete("letter", "topic", "par"),
    counted: await traveler.call("count", { to: 4 }, progress),
    progress,
    ...(await questions(traveler, host)),
    ...(await logs(traveler, host)),
    ...(await changes(traveler, host)),
    ...(await cancellation(traveler, mark)),
  };
}

async function interruption(traveler) {
  const progress = [];
  const answered = await traveler.call("step_aside", {}, progress);
  const added = await traveler.call("add", { first: 1, second: 1 });
  return { answered, progress, added };
}

// Read where to go, go there, and print what was seen. Both clients have the same `Client` but for
// how handlers are set, `on` and `answer`, and how the transport to a target is made.
export async function main({ connect, on, answer, version }) {
  const { targets } = JSON.parse(await text(process.stdin));

  async function visit(key, target) {
    const host = new Host();
    const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
    const { client, transport } = connect(target, capabilities);
    answer(client, "elicitation/create", (params) => host.elicit(params));
    answer(client, "sampling/createMessage", (params) => host.sample(params));
    answer(client, "roots/list", () => host.roots());
    on(client, "notifications/message", (params) => host.log(params));
    on(client, "notifications/resources/updated", ({ uri }) => host.update(uri));
    on(client, "notifications/tools/list_changed", () => host.happened("rearranged"));
    await client.connect(transport);
    const traveler = travelerOf(client, () => version(client, transport));
    const seen =
      target.kind === "interruption"
        ? await interruption(traveler)
        : await journey(traveler, host, target.mark);
    await client.close();
    return [key, seen];
  }

  const seen = await Promise.all(Object.entries(targets).map((one) => visit(...one)));
  console.log(JSON.stringify(Object.fromEntries(seen)));
  // A stream that a client has left open would keep the process.
  process.exit(0);
}

function travelerOf(client, version) {
  return {
    introduce: async () => ({
      version: version(),
      name: client.getServerVersion().name,
      capabilities: Object.keys(client.getServerCapabilities()).sort(),
    }),
    tools: async () => (await client.listTools()).tools.map(({ name }) => name).sort(),
    call: async (name, args, progress) => {
      const options = progress ? { onprogress: (one) => progress.push(one.progress) } : {};
      try {
        const result = await client.callTool({ name, arguments: args }, ...client.schema, options);
        const [{ text }] = result.content;
        const structured = result.structuredContent ?? null;
        return { text, structured, failed: result.isError ?? false };
      } catch (error) {
        if (error.code === undefined) throw error;
        return { code: error.code };
      }
    },
    callAndCancel: async (name, args) => {
      const controller = new AbortController();
      const options = { signal: controller.signal, onprogress: () => controller.abort("enough") };
      await client
        .callTool({ name, arguments: args }, ...client.schema, options)
        .catch((error) => {
          if (!/enough/.test(String(error))) throw error;
        });
    },
    read: async (uri) => (await client.readResource({ uri })).contents[0].text,
    prompt: async (name, args) =>
      (await client.getPrompt({ name, arguments: args })).messages[0].content.text,
    complete: async (prompt, name, value) => {
      const ref = { type: "ref/prompt", name: prompt };
      return (await client.complete({ ref, argument: { name, value } })).completion.values;
    },
    setLevel: (level) => client.setLoggingLevel(level),
    subscribe: (uri) => client.subscribeResource({ uri }),
    unsubscribe: (uri) => client.unsubscribeResource({ uri }),
    ping: () => client.ping(),
  };
}
