/** Milliseconds that no change of the wall clock moves. */
export function monotonicMs() {
  return process.uptime() * 1000;
}
