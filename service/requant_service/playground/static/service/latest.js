const TYPING_MILLISECONDS = 200;

/**
 * Work that follows what a person types: it begins when they pause, and each beginning aborts the one before.
 * @param {AbortSignal} left ends it for good
 * @param {function(AbortSignal): Promise<void>} work
 * @returns {function(): void} begin after a pause; its member `now` begins at once
 */
export function latest(left, work) {
  let running = new AbortController();
  let timer;
  left.addEventListener("abort", () => {
    clearTimeout(timer);
    running.abort();
  });

  const now = async () => {
    clearTimeout(timer);
    running.abort();
    running = new AbortController();
    const { signal } = running;
    try {
      await work(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
  const begin = () => {
    clearTimeout(timer);
    timer = setTimeout(now, TYPING_MILLISECONDS);
  };
  return Object.assign(begin, { now });
}
