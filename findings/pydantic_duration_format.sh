#!/bin/sh
# pydantic 2.14.4 and ajv-formats 3.0.1: pydantic describes a timedelta by "format": "duration" and
# writes fractions of a second and signs, which that format does not have.
#
# The format is the ABNF of RFC 3339, appendix A (JSON Schema 2020-12, Validation, 7.3.1), which
# has whole numbers only; pydantic writes ISO 8601-1 durations. A validator that checks formats
# thus rejects a value by the schema that its own writer made.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-extensions==4.16.0 \
    typing-inspection==0.4.5
npm install --silent --no-audit --no-fund --prefix "$folder" ajv@8.20.0 ajv-formats@3.0.1

cat > "$folder/write.py" <<'PYTHON'
import json
from datetime import timedelta
from importlib.metadata import version

from pydantic import TypeAdapter

adapter = TypeAdapter(timedelta)
durations = [timedelta(hours=2), timedelta(seconds=0.5), timedelta(days=-1)]
print(
    json.dumps(
        {
            "version": version("pydantic"),
            "schema": adapter.json_schema(mode="serialization"),
            "values": [adapter.dump_python(one, mode="json") for one in durations],
        }
    )
)
PYTHON
cat > "$folder/check.mjs" <<'JAVASCRIPT'
import { readFileSync } from "node:fs";
import Ajv from "ajv";
import addFormats from "ajv-formats";

const { version, schema, values } = JSON.parse(readFileSync(0, "utf8"));
const ajv = new Ajv();
addFormats(ajv);
const validate = ajv.compile(schema);
console.log("pydantic", version, JSON.stringify(schema));
for (const value of values) console.log(value, validate(value) ? "accepted" : "rejected");
JAVASCRIPT
cat > "$folder/expected" <<'OUTPUT'
pydantic 2.14.4 {"format":"duration","type":"string"}
PT2H accepted
PT0.5S rejected
-P1D rejected
OUTPUT
"$folder/venv/bin/python" "$folder/write.py" | node "$folder/check.mjs" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
