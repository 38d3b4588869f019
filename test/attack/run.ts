/**
 * `npm run check:attack`: slow clients, floods and bombs against a real daemon while another client is served; an owner
 * who swaps the sources of container mounts; compose files that make root write; floods of one user; a user who swaps
 * parent directories during file operations.
 */
import { attackWithFloods } from "./floods.ts";
import { attackMounts } from "./mounts.ts";
import { attackAll } from "./scenario.ts";
import { attackFiles } from "./swaps.ts";
import { attackComposeWrites } from "./compose-writes.ts";

const findings = await attackMounts(200);
findings.push(...(await attackComposeWrites()));
findings.push(
  ...(await attackAll({
    connections: 2_000,
    resets: 300_000,
    bombBytes: 1024 ** 3,
    mostP99Ms: 250,
  })),
);
findings.push(
  ...(await attackWithFloods({
    ...{ forMs: 10_000, scale: 1 },
    ...{ mostRootMs: 100, mostOthersMs: 250, mostMedianMs: 100 },
  })),
);
for (const { attack, text, isGood } of findings) console.log(`${isGood ? "✔" : "✘"} ${attack}: ${text}`);
// A finding is an error that it throws.
for (const { verb, caller, tries, swaps } of await attackFiles(60_000)) {
  console.log(`✔ ${verb} by ${caller}: ${tries} tries among ${swaps} swaps`);
}
process.exitCode = findings.every(({ isGood }) => isGood) ? 0 : 1;
