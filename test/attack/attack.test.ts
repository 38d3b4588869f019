/** The short version of `npm run check:attack`. */
import test from "ava";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { flood, floods } from "./floods.ts";
import { attackMounts } from "./mounts.ts";
import { attackAll } from "./scenario.ts";
import { attackFiles, leastTurns } from "./swaps.ts";

const emptyDaemon = sharedDaemon();
const rootTest = isRoot ? test : test.skip;

test("another client is served while slow clients, resets and a bomb come in", async (t) => {
  // A machine that is busy with other tests is slow by itself: the real bound is that of check:attack.
  const mostP99Ms = 3_000;
  const findings = await attackAll({
    connections: 100,
    resets: 6_000,
    bombBytes: 256 * 1024 * 1024,
    mostP99Ms,
  });
  for (const { attack, text, isGood } of findings) {
    t.log(`${attack}: ${text}`);
    t.true(isGood, attack);
  }
});

rootTest(`an owner cannot have a container mount anything else (threat 54)${needsRoot}`, async (t) => {
  for (const { attack, text, isGood } of await attackMounts(2)) {
    t.log(`${attack}: ${text}`);
    t.true(isGood, attack);
  }
});

for (const kind of floods) {
  rootTest(
    `root and others are served while a user floods with ${kind} (threat 57)${needsRoot}`,
    async (t) => {
      // As above, a busy machine's bound. Without turns half of all requests take more than a second.
      const { text, isGood } = await flood(await emptyDaemon(), [kind], {
        ...{ forMs: 500, scale: 0.5 },
        ...{ mostRootMs: 5_000, mostOthersMs: 5_000, mostMedianMs: 400 },
      });
      t.log(text);
      t.true(isGood, text);
    },
  );
}

rootTest(`nobody leads the work on files to another place (threats 22, 23)${needsRoot}`, async (t) => {
  for (const { verb, caller, tries, swaps } of await attackFiles(100)) {
    t.log(`${verb} by ${caller}: ${tries} tries among ${swaps} swaps`);
    t.true(tries >= 4 * leastTurns && swaps > 0, verb);
  }
});
