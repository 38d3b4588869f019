import { fileURLToPath } from "node:url";

/**
 * The program under test: the bundle that `npm test` makes first, which starts with a fifth of the processor time; the sources
 * for whoever runs AVA alone.
 */
export const main =
  process.env["SVC_TEST_MAIN"] ?? fileURLToPath(new URL("../../src/main.ts", import.meta.url));
