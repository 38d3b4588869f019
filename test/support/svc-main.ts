import { fileURLToPath } from "node:url";

/**
 * The program under test: the bundle that `npm test` builds first, which uses a fifth of the CPU time to start, or the
 * sources if AVA runs without `npm test`.
 */
export const main =
  process.env["SVC_TEST_MAIN"] ?? fileURLToPath(new URL("../../src/main.ts", import.meta.url));
