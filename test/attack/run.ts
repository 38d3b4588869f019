/**
 * `npm run check:attack`: slow clients, floods and bombs against a real daemon, while another client is served; an owner who
 * swaps what their containers mount; one user's floods.
 */
import { attackWithFloods } from "./floods.ts";
import { attackMounts } from "./mounts.ts";
import { attackAll } from "./scenario.ts";

const findings = await attackMounts(200);
findings.push(
  ...(await attackAll({
    connections: 2_000,
    resets: 300_000,
    bombBytes: 1024 ** 3,
    mostP99Ms: 250,
  })),
);
findings.push(...(await attackWithFloods({ forMs: 10_000, scale: 1, mostRootMs: 250, mostOthersMs: 500 })));
for (const { attack, text, isGood } of findings) console.log(`${isGood ? "✔" : "✘"} ${attack}: ${text}`);
process.exitCode = findings.every(({ isGood }) => isGood) ? 0 : 1;
