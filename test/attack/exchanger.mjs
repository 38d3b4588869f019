/**
 * Somebody who may write to a directory on the way: exchanges two names in it for each other, as fast as it gets, until
 * standard input ends. Tells then how often.
 *
 * Arguments: the directory, the two names.
 */
import { createRequire } from "node:module";

const [directory = "/", one = "", other = ""] = process.argv.slice(2);
/** @type {typeof import("koffi")} */
const koffi = createRequire(import.meta.url)("koffi");
const renameat2 = koffi.load(null).func("int renameat2(int, const char *, int, const char *, uint32_t)");
const cwd = -100;
const exchange = 2;
let count = 0;
process.chdir(directory);
process.stdin.resume();
console.log("ready");
while (!process.stdin.readableEnded) {
  for (let turn = 0; turn < 1000; turn++) if (renameat2(cwd, one, cwd, other, exchange) === 0) count++;
  await new Promise((resolve) => setImmediate(resolve));
}
console.log(count);
