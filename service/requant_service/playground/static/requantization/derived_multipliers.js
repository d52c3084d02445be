/**
 * Derive the multiplier and shift of a factor in each scheme.
 * @param {Api} api
 * @param {{name: string}[]} schemes of GET /v1/schemes
 * @param {{factors: string[]}|{scales: Object[]}} given one factor, or the scales of one
 * @param {AbortSignal} signal
 * @returns {Promise<{scheme: Object, derived?: Object, refusal?: string}[]>} `derived` of the reply, or why the scheme refuses
 */
export function derivedBySchemes(api, schemes, given, signal) {
  return Promise.all(
    schemes.map(async (scheme) => {
      try {
        const body = { ...given, scheme: scheme.name };
        const { results } = await api.post("/v1/parameters/multiplier", body, { signal });
        return { scheme, derived: results[0] };
      } catch (error) {
        if (error.name === "AbortError") throw error;
        return { scheme, refusal: error.message };
      }
    }),
  );
}
