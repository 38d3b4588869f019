import { dirname } from "node:path";
import { bundledPrograms, sourcePrograms, type Programs } from "../../src/daemon/programs.ts";

const bundle = process.env["SVC_TEST_MAIN"];

/**
 * The programs and threads that tests start themselves: those of the bundle that `npm test` makes first, of the sources for
 * whoever runs AVA alone. A thread of the sources loads first what takes the types out of them, which takes ten times as long
 * as all else that it loads.
 */
export const programs: Programs = bundle === undefined ? sourcePrograms() : bundledPrograms(dirname(bundle));
