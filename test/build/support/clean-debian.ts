/** The clean Debian that `.ci/run` makes with debootstrap. It is read-only: tests use an overlay. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { whyNoSystemd } from "../../support/systemd.ts";

export const debian = join(import.meta.dirname, "../../../node_modules/.cache/svc-tools/debian");
const obstacle = whyNoSystemd ?? (existsSync(debian) ? undefined : `needs ${debian}, as .ci/run makes it`);
/** For titles of tests that need it. */
export const needsDebian = obstacle === undefined ? "" : ` (skipped: ${obstacle})`;
export const debianTest = obstacle === undefined ? test : test.skip;
