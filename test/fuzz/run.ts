/** `npm run check:fuzz [-- COUNT [SEED]]`: 100,000 random requests against a real daemon. */
import { fuzz } from "./fuzz.ts";

const [count = "100000", seed = String(Date.now() % 2 ** 32)] = process.argv.slice(2);
const mostGrownMiB = 20;

console.log(`${count} requests, seed ${seed}`);
const startMs = performance.now();
const { answers, failures, grownMiB } = await fuzz({
  count: Number(count),
  seed: Number(seed),
  warmUp: 20_000,
});
for (const [answer, times] of [...answers].sort()) console.log(`${String(times).padStart(8)}  ${answer}`);
for (const failure of failures) console.log(`✘ ${failure}`);
console.log(
  `${Math.round((performance.now() - startMs) / 1000)} s; memory in use grew by ${grownMiB.used.toFixed(1)} MiB, ` +
    `resident memory by ${grownMiB.rss.toFixed(1)} MiB`,
);
const isGood = failures.length === 0 && Math.max(grownMiB.used, grownMiB.rss) <= mostGrownMiB;
console.log(isGood ? "The daemon held." : "The daemon did not hold.");
process.exitCode = isGood ? 0 : 1;
