/** Calls of the service, relative to the page, so that it works behind any prefix. */

const PATIENCE_MILLISECONDS = 1200;
const MAX_TRIES = 60;

/** A body as JSON text. JSON.stringify writes -0 as 0. */
export function jsonText(body, indent) {
  const minusZero = "\u0000-0";
  const text = JSON.stringify(body, (_, value) => (Object.is(value, -0) ? minusZero : value), indent);
  return text.replaceAll(JSON.stringify(minusZero), "-0.0");
}

/** A reply that is an error: its fields are those of application/problem+json (RFC 9457). */
class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `the service answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.title = body.title ?? "Error";
    this.hint = body.hint ?? "";
    this.caret = body.caret ?? "";
    this.offset = body.offset;
    this.index = body.index;
    this.errors = body.errors ?? [];
  }
}

export class Api {
  #token = "";
  #askForToken;
  #onPending;
  #pending = 0;

  /**
   * @param {function(boolean): Promise<string>} askForToken called after a 401, with whether a token was refused
   * @param {function(boolean): void} onPending called when requests begin to take long, and when they no longer do
   */
  constructor(askForToken, onPending) {
    this.#askForToken = askForToken;
    this.#onPending = onPending;
  }

  /** Whether the service asked for a token. */
  get usesToken() {
    return this.#token !== "";
  }

  /** Return the reply's JSON. @throws {Problem} */
  async get(path, { signal } = {}) {
    return this.#call(path, { method: "GET", signal });
  }

  /** Return the reply's JSON. @throws {Problem} */
  async post(path, body, { signal } = {}) {
    const headers = { "content-type": "application/json" };
    return this.#call(path, { method: "POST", headers, body: jsonText(body), signal });
  }

  /** Return the reply as it is, for one that is a file. @throws {Problem} */
  async file(path, body, { signal } = {}) {
    const headers = { "content-type": "application/json" };
    return this.#call(path, { method: "POST", headers, body: jsonText(body), signal }, (reply) => reply.blob());
  }

  /** Return what /healthz says, whatever its status; null if nothing answers. */
  async health() {
    try {
      const reply = await fetch("healthz", { cache: "no-store" });
      return await reply.json();
    } catch {
      return null;
    }
  }

  async #call(path, options, read = bodyOf) {
    let slow = false;
    const timer = setTimeout(() => {
      slow = true;
      this.#count(1);
    }, PATIENCE_MILLISECONDS);
    try {
      return await this.#tries(path, options, read);
    } finally {
      clearTimeout(timer);
      if (slow) this.#count(-1);
    }
  }

  async #tries(path, options, read) {
    for (let tries = 1; ; tries += 1) {
      const reply = await this.#send(path, options);
      if (reply.status === 401) {
        this.#token = await this.#askForToken(this.#token !== "");
      } else if (reply.status === 503 && tries < MAX_TRIES) {
        await pause(reply.headers.get("retry-after"), options.signal);
      } else {
        if (!reply.ok) throw new Problem(reply.status, await bodyOf(reply));
        return await read(reply);
      }
    }
  }

  async #send(path, options) {
    const headers = { ...options.headers };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    try {
      return await fetch(path.replace(/^\//, ""), { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, { title: "No answer", detail: "The service does not answer. Is it running?" });
    }
  }

  #count(change) {
    this.#pending += change;
    this.#onPending(this.#pending > 0);
  }
}

/**
 * Return the JSON of a reply; an error need not have any.
 * @throws {Problem} for another reply without JSON, or one that breaks off
 */
async function bodyOf(reply) {
  try {
    return await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!reply.ok) return {};
    throw new Problem(reply.status, { title: "No answer", detail: "The answer of the service is incomplete." });
  }
}

function pause(retryAfter, signal) {
  const seconds = Math.min(Math.max(Number(retryAfter) || 1, 0.2), 5);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
