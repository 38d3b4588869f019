/** Milliseconds, unaffected by changes of the wall clock. */
export function monotonicMs() {
  return process.uptime() * 1000;
}
