/**
 * Exchanges two names of one directory repeatedly and atomically (`renameat2(2)` with `RENAME_EXCHANGE`), so neither is
 * ever missing. Prints `exchanging`; exits when its standard input closes. A program, so that it can run as another
 * user. Arguments as JSON: `{"paths": ["/a/x", "/a/y"]}`.
 */
import koffi from "koffi";

const { paths } = /** @type {{ paths: [string, string] }} */ (JSON.parse(process.argv[2] ?? ""));
const [one, other] = paths;
const renameat2 = koffi
  .load("libc.so.6")
  .func("int renameat2(int, const char *, int, const char *, unsigned int)");
const atCwd = -100;
const exchange = 2;

const round = () => {
  for (let n = 0; n < 500; n++) {
    if (renameat2(atCwd, one, atCwd, other, exchange) !== 0) process.exit(1);
  }
  setImmediate(round);
};
process.stdin.resume().on("end", () => process.exit());
round();
console.log("exchanging");
