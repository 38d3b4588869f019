/** `npm run check:fuzz [-- COUNT [SEED]]`: 100,000 random requests against a real daemon. */
import { fuzz } from "./fuzz.ts";

const [count = "100000", seed = String(Date.now() % 2 ** 32)] = process.argv.slice(2);
const mostGrownMiB = 20;

console.log(`${count} requests, seed ${seed}`);
const startMs = performance.now();
const { answers, failures, growth } = await fuzz({
  count: Number(count),
  seed: Number(seed),
  memory: { warmUp: 20_000, rounds: 4 },
});
for (const [answer, times] of [...answers].sort()) console.log(`${String(times).padStart(8)}  ${answer}`);
for (const failure of failures) console.log(`✘ ${failure}`);
for (const { requests, usedMiB, residentMiB } of growth) {
  console.log(
    `after ${requests} requests: in use ${signed(usedMiB)} MiB, resident ${signed(residentMiB)} MiB`,
  );
}
console.log(`${Math.round((performance.now() - startMs) / 1000)} s`);
const last = growth.at(-1);
const isGood =
  failures.length === 0 && last !== undefined && Math.max(last.usedMiB, last.residentMiB) <= mostGrownMiB;
console.log(isGood ? "The daemon held." : "The daemon did not hold.");
process.exitCode = isGood ? 0 : 1;

function signed(amount: number): string {
  return `${amount < 0 ? "" : "+"}${amount.toFixed(1)}`;
}
