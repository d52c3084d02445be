const EVERY_MILLISECONDS = 1000;
const ANNOUNCED_EVERY = 15;

/** Says why answers take long: from /healthz, while the service compiles its kernels. */
export class ServiceStatus {
  #root;
  #api;
  #announce;
  #timer = null;
  #times = 0;

  /** @param {function(string): void} announce say it to screen readers */
  constructor(root, api, announce) {
    this.#root = root;
    this.#api = api;
    this.#announce = announce;
  }

  requestsAreSlow(slow) {
    if (slow && this.#timer === null) {
      this.#times = 0;
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
    if (this.#timer === null) return;
    this.#root.textContent = described(health);
    // Not each second: a screen reader would say nothing else.
    if (this.#times % ANNOUNCED_EVERY === 0) this.#announce(this.#root.textContent);
    this.#times += 1;
  }
}

function described(health) {
  if (!health) return "The service does not answer.";
  const { compiled, total, seconds_left: left } = health.kernels ?? {};
  if (Number.isFinite(compiled) && Number.isFinite(total) && compiled < total) {
    const time = Number.isFinite(left) ? `, about ${left > 120 ? `${Math.round(left / 60)} min` : `${Math.ceil(left)} s`} left` : "";
    return `The service is compiling its kernels: ${compiled} of ${total}${time}. Each answer comes as soon as its own kernels are ready.`;
  }
  if (health.status && health.status !== "ready") return `The service is not ready yet (${health.status}).`;
  return "Waiting for the service…";
}
