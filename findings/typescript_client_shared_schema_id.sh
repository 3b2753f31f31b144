#!/bin/sh
# @modelcontextprotocol/client 2.4.0 and @modelcontextprotocol/sdk 1.32.2: output schemas of two
# tools with the same $id share one validator, that of the tool whose schema came first.
#
# The provider keeps one Ajv for all tools and asks it for the schema of that $id before it compiles
# one. A server that writes the $id of its vocabulary into each schema thus has its results checked
# by another tool's schema.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" \
    @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2

cat > "$folder/run.mjs" <<'JAVASCRIPT'
import { readFileSync } from "node:fs";
import { AjvJsonSchemaValidator as Older } from "@modelcontextprotocol/sdk/validation/ajv";
import { AjvJsonSchemaValidator as Newer } from "@modelcontextprotocol/client/validators/ajv";

const schemaOf = (type) => ({
  $id: "https://example.org/result",
  type: "object",
  properties: { value: { type } },
});
for (const [name, Provider] of [["sdk", Older], ["client", Newer]]) {
  const file = new URL(`node_modules/@modelcontextprotocol/${name}/package.json`, import.meta.url);
  const provider = new Provider();
  const first = provider.getValidator(schemaOf("integer"));
  const second = provider.getValidator(schemaOf("string"));
  console.log(name, JSON.parse(readFileSync(file)).version);
  console.log("first tool, 1:", first({ value: 1 }).valid);
  console.log("second tool, text:", second({ value: "a" }).errorMessage);
}
JAVASCRIPT
cat > "$folder/expected" <<'OUTPUT'
sdk 1.32.2
first tool, 1: true
second tool, text: data/value must be integer
client 2.4.0
first tool, 1: true
second tool, text: data/value must be integer
OUTPUT
node "$folder/run.mjs" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
