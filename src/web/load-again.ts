/** What a network that changes breaks off goes once more, and once more. */

/** How long it waits before each further try. */
const pausesMs = [300, 1_000, 3_000];

/**
 * @param isBrokenOff whether a further try may do better after this error
 * @throws what the last try threw
 */
export async function loadAgain<T>(
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
