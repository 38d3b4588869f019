/** Compose files of users must not make programs that run as root write into users' directories. */
import test from "ava";
import { composeGenerations } from "../support/compose-generations.ts";
import { isRoot } from "../support/daemon.ts";
import { whyNoDocker } from "../support/docker.ts";
import { attackComposeWrites } from "./compose-writes.ts";

const missing =
  whyNoDocker ??
  (isRoot ? composeGenerations.every((one) => one.missing !== "") && "needs docker-compose" : "needs root");
const attackTest = missing === false ? test : test.skip;

attackTest(
  `no compose file makes root write into its owner's directory or exceeds a user's limits${missing === false ? "" : ` (skipped: ${missing})`}`,
  async (t) => {
    t.timeout(300_000);
    for (const { attack, text, isGood } of await attackComposeWrites()) {
      t.log(`${attack}: ${text}`);
      t.true(isGood, `${attack}: ${text}`);
    }
  },
);
