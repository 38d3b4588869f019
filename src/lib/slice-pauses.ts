/** Divides long work into slices, so that the event loop can handle other events in between. */
import { setImmediate as breathe } from "node:timers/promises";

/** Milliseconds of work before yielding to the event loop. */
const sliceMs = 5;

/** Returns a function to call between steps of work: it returns a promise to await when a slice has ended. */
export function slicePauses(): () => Promise<void> | undefined {
  let endMs = performance.now() + sliceMs;
  return () => {
    if (performance.now() <= endMs) return undefined;
    return breathe().then(() => {
      endMs = performance.now() + sliceMs;
    });
  };
}
