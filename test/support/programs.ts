import { dirname } from "node:path";
import { bundledPrograms, sourcePrograms, type Programs } from "../../src/daemon/programs.ts";
import { main } from "./svc-main.ts";

const bundle = process.env["SVC_TEST_MAIN"];
const command = [process.execPath, main];

/**
 * Programs and threads that tests start themselves: from the bundle that `npm test` builds first, or from the sources
 * if AVA runs without `npm test`. A thread from the sources first loads the type stripper, which takes ten times as long as
 * everything else.
 */
export const programs: Programs =
  bundle === undefined ? sourcePrograms(command) : bundledPrograms(command, dirname(bundle));
