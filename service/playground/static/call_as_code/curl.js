import { jsonText } from "./literals.js";

// Linux takes no argument of 128 KiB.
const MOST_CHARACTERS_OF_ARGUMENT = 100_000;

/** @returns {string} the call as a command of a POSIX shell */
export function curlText({ path, body }, base) {
  const head = `curl -sS ${quoted(new URL(path.slice(1), base).href)} \\\n  -H 'Content-Type: application/json'`;
  const json = jsonText(body);
  if (json.length > MOST_CHARACTERS_OF_ARGUMENT) return `${head} --data-binary @- <<'JSON'\n${json}\nJSON`;
  return `${head} -d ${quoted(json)}`;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
