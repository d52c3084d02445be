const EVERY_MILLISECONDS = 1000;

/** Says why answers take long: from /healthz, while the service compiles its kernels. */
export class ServiceStatus {
  #root;
  #api;
  #timer = null;

  constructor(root, api) {
    this.#root = root;
    this.#api = api;
  }

  requestsAreSlow(slow) {
    if (slow && this.#timer === null) {
      this.#root.textContent = "Waiting for the service…";
      this.#ask();
      this.#timer = setInterval(() => this.#ask(), EVERY_MILLISECONDS);
    } else if (!slow && this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
      this.#root.textContent = "";
    }
  }

  async #ask() {
    const health = await this.#api.health();
    if (this.#timer !== null) this.#say(described(health));
  }

  // Only what is new: screen readers say each change.
  #say(text) {
    if (this.#root.textContent !== text) this.#root.textContent = text;
  }
}

function described(health) {
  if (!health) return "The service does not answer.";
  const { compiled, total } = health.kernels ?? {};
  const left = health.seconds_left;
  if (Number.isFinite(compiled) && Number.isFinite(total) && compiled < total) {
    const time = Number.isFinite(left) ? `, about ${Math.ceil(left)} s left` : "";
    return `The service is compiling its kernels: ${compiled} of ${total}${time}. The answer comes as soon as its own kernel is ready.`;
  }
  if (health.status && health.status !== "ready") return `The service is not ready yet (${health.status}).`;
  return "Waiting for the service…";
}
