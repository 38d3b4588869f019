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

test("a client is served during slow clients, stream resets and a decompression bomb", async (t) => {
  // A limit for a host that is busy with other tests; the real one is in check:attack.
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

rootTest(`an owner cannot make a container mount anything else${needsRoot}`, async (t) => {
  for (const { attack, text, isGood } of await attackMounts(2)) {
    t.log(`${attack}: ${text}`);
    t.true(isGood, attack);
  }
});

for (const kind of floods) {
  rootTest(`root and others are served while a user floods with ${kind}${needsRoot}`, async (t) => {
    // A limit for a busy host, as above. Without fair queues half of all requests take more than a second.
    const { text, isGood } = await flood(await emptyDaemon(), [kind], {
      ...{ forMs: 1_500, scale: 0.5 },
      ...{ mostRootMs: 5_000, mostOthersMs: 5_000, mostMedianMs: 400 },
    });
    t.log(text);
    t.true(isGood, text);
  });
}

rootTest(`swapped directories never redirect file operations${needsRoot}`, async (t) => {
  for (const { verb, caller, tries, swaps } of await attackFiles(100)) {
    t.log(`${verb} by ${caller}: ${tries} tries among ${swaps} swaps`);
    t.true(tries >= 4 * leastTurns && swaps > 0, verb);
  }
});
