import { pythonText } from "./literals.js";

/** @returns {string} the call as a program that needs nothing but Python */
export function pythonProgram({ path, body }, base) {
  return `import json
import urllib.request

body = ${pythonText(body)}
request = urllib.request.Request(
    ${JSON.stringify(new URL(path.slice(1), base).href)},
    json.dumps(body).encode(),
    {"Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as reply:
    print(json.dumps(json.load(reply), indent=2))`;
}
