import { pythonLiteral } from "./literals.js";

/** @returns {string} the call as a program that needs nothing but Python; a token is read from the environment */
export function pythonProgram({ path, body }, { base, token }) {
  return `import json
${token ? "import os\n" : ""}import urllib.request

body = ${pythonLiteral(body)}
request = urllib.request.Request(
    ${JSON.stringify(new URL(path.slice(1), base).href)},
    json.dumps(body).encode(),
    {"Content-Type": "application/json"${token ? `, "Authorization": f"Bearer {os.environ['TOKEN']}"` : ""}},
)
with urllib.request.urlopen(request) as reply:
    print(json.dumps(json.load(reply), indent=2))`;
}
