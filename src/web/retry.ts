/** Retries work that a network change interrupted. */

/** Waiting time before each further attempt. */
const pausesMs = [300, 1_000, 3_000];

/**
 * @param isBrokenOff whether another attempt may succeed after this error
 * @throws the error of the last attempt
 */
export async function withRetries<T>(
  load: () => Promise<T>,
  isBrokenOff: (error: unknown) => boolean = () => true,
): Promise<T> {
  for (const pauseMs of pausesMs) {
    try {
      return await load();
    } catch (error) {
      if (!isBrokenOff(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
  return load();
}
