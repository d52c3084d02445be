/** What several profiles answer to the same question, as it comes. */

// A browser has six connections to an origin. Explanations, and how far the service has compiled, need some as well.
const MOST_AT_ONCE = 4;
const PACE_MILLISECONDS = 60;
const PATIENCE_MILLISECONDS = 400;

/**
 * Ask for each profile, a few at a time.
 * @param {string[]} profiles
 * @param {function(string, function(Object): void): Promise<Object>} ask answers for a profile; what it has before all
 *   of it is there it may tell its second argument
 * @param {function(Object[]): void} onProgress called with all answers so far, in the order of the profiles: at a pace
 *   that can be drawn, and soon if there is none. An answer that is not complete has `pending`.
 * @returns {Promise<Object[]>} the complete answers
 */
export async function answersAsTheyCome(profiles, ask, onProgress) {
  const answers = profiles.map((profile) => ({ profile, pending: true }));
  let timer = null;
  const showIn = (milliseconds) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = null;
      onProgress([...answers]);
    }, milliseconds);
  };
  let first = true;
  const set = (place, answer) => {
    answers[place] = answer;
    if (first || timer === null) showIn(PACE_MILLISECONDS);
    first = false;
  };
  let next = 0;
  const work = async () => {
    while (next < profiles.length) {
      const place = next;
      next += 1;
      set(place, await ask(profiles[place], (part) => set(place, { ...part, pending: true })));
    }
  };
  showIn(PATIENCE_MILLISECONDS);
  try {
    await Promise.all(Array.from({ length: MOST_AT_ONCE }, work));
    return answers;
  } finally {
    clearTimeout(timer);
  }
}
