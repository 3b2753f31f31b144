// The official TypeScript clients with their own OAuth, from nothing to revocation: a call, a call
// that needs more scopes, one after the token expired, one after it was revoked. The two clients
// differ in how a client is made and in how it is told that the user came back.

import { text } from "node:stream/consumers";

const REDIRECT = "http://localhost:3030/callback";

async function tell(person, what) {
  const answer = await fetch(person, { method: "POST", body: JSON.stringify(what) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(JSON.stringify(found));
  return found;
}

// What the client keeps, and the browser that it opens.
function makeProvider(target, landed) {
  const kept = {};
  return {
    kept,
    redirectUrl: REDIRECT,
    clientMetadataUrl: target.document,
    clientMetadata: {
      client_name: "Official client",
      redirect_uris: [REDIRECT],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    },
    state: () => "state-of-the-client",
    clientInformation: () => kept.client,
    saveClientInformation: (client) => void (kept.client = client),
    tokens: () => kept.tokens,
    saveTokens: (tokens) => void (kept.tokens = tokens),
    saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
    codeVerifier: () => kept.verifier,
    invalidateCredentials(scope) {
      const members = { all: ["client", "tokens", "verifier"], client: ["client"], tokens: ["tokens"] };
      for (const member of members[scope] ?? []) delete kept[member];
    },
    discoveryState: () => kept.discovery,
    saveDiscoveryState: (found) => void (kept.discovery = found),
    async redirectToAuthorization(url) {
      landed.push((await tell(target.person, { authorize: String(url) })).landed);
    },
  };
}

async function journey(target, { make, finish, stepUp }) {
  const landed = [];
  const grants = [];
  const paths = [];
  let wanted = "";
  const provider = makeProvider(target, landed);
  const options = {
    authProvider: provider,
    fetch: async (url, init) => {
      const { pathname } = new URL(url);
      paths.push(pathname);
      if (pathname.startsWith("/oauth/token")) grants.push(new URLSearchParams(init.body).get("grant_type"));
      const answer = await fetch(url, init);
      const challenge = answer.headers.get("www-authenticate") ?? "";
      if (answer.status === 403) wanted = challenge.match(/scope="([^"]*)"/)?.[1];
      return answer;
    },
  };
  let client, transport;
  const connect = async () => {
    ({ client, transport } = make(new URL(target.url), options, target));
    await client.connect(transport);
  };
  // The client throws once the user is on the way; the host goes on when he is back.
  const withUser = async (attempt) => {
    const before = landed.length;
    try {
      return await attempt();
    } catch (error) {
      // What a client does not do by itself is left to its host.
      if (error.code === 403 && stepUp) await stepUp(provider, target.url, wanted);
      if (landed.length === before) throw error;
      await finish(transport, new URL(landed.at(-1)).searchParams);
      return null;
    }
  };
  const persist = async (attempt) => {
    for (let turn = 0; turn < 3; turn++) {
      const found = await withUser(attempt);
      if (found !== null) return found;
    }
    throw new Error("The user was asked in circles.");
  };
  const call = (name, args = {}) =>
    persist(async () => (await client.callTool({ name, arguments: args })).content[0].text);

  await persist(async () => (await connect(), true));
  const seen = { first: await call("whoami"), granted: provider.kept.tokens.scope };
  seen.more = await call("refund", { number: "7" });
  seen.granted_more = provider.kept.tokens.scope;
  await tell(target.person, { expire: true });
  let before = grants.length;
  seen.later = await call("whoami");
  seen.later_grants = grants.slice(before);
  const { client: known, tokens } = provider.kept;
  const revocation = await fetch(new URL("/oauth/revoke", target.url), {
    method: "POST",
    body: new URLSearchParams({ token: tokens.refresh_token, client_id: known.client_id }),
  });
  seen.revocation = revocation.status;
  before = landed.length;
  seen.again = await call("whoami");
  seen.asked_again = landed.length - before;
  seen.client_id = known.client_id;
  seen.registered = paths.filter((path) => path.includes("register")).length;
  seen.version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
  await client.close();
  return seen;
}

export async function main(parts) {
  const { targets } = JSON.parse(await text(process.stdin));
  const seen = {};
  for (const [key, target] of Object.entries(targets)) seen[key] = await journey(target, parts);
  console.log(JSON.stringify(seen));
  process.exit(0);
}
