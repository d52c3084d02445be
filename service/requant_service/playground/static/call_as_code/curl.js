import { jsonLiteral } from "./literals.js";

// Linux takes no argument of 128 KiB.
const MAX_CHARACTERS_OF_ARGUMENT = 100_000;

/** @returns {string} the call as a command of a POSIX shell, with a token from the variable TOKEN if there is to be one */
export function curlText({ path, body }, { base, token }) {
  const head = `curl -sS ${quoted(new URL(path.slice(1), base).href)} \\\n  ${token ? '-H "Authorization: Bearer $TOKEN" ' : ""}-H 'Content-Type: application/json'`;
  const json = jsonLiteral(body);
  if (json.length > MAX_CHARACTERS_OF_ARGUMENT) return `${head} --data-binary @- <<'JSON'\n${json}\nJSON`;
  return `${head} -d ${quoted(json)}`;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
