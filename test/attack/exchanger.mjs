/**
 * A user who may write to parent directories: exchanges `named` and `link` in one of them as fast as possible. Each line of
 * standard input is the directory to use from then on, and `ready` confirms it; an empty line stops the exchanges and
 * prints their number.
 */
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

/** @type {typeof import("koffi")} */
const koffi = createRequire(import.meta.url)("koffi");
const renameat2 = koffi.load(null).func("int renameat2(int, const char *, int, const char *, uint32_t)");
const cwd = -100;
const exchange = 2;
let count = 0;
let isOn = false;

function round() {
  if (!isOn) return;
  for (let turn = 0; turn < 1000; turn++) if (renameat2(cwd, "named", cwd, "link", exchange) === 0) count++;
  setImmediate(round);
}

createInterface({ input: process.stdin })
  .on("line", (directory) => {
    isOn = directory !== "";
    if (!isOn) {
      console.log(count);
      return;
    }
    count = 0;
    process.chdir(directory);
    console.log("ready");
    round();
  })
  .on("close", () => process.exit());
