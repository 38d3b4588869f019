import test from "ava";
import { identityMismatch } from "../../src/identity/helper/verify.mjs";

const expected = { uid: 5, gid: 60, groups: [60, 44, 100], dropped: true };
const good = {
  Uid: "5\t5\t5\t5",
  Gid: "60\t60\t60\t60",
  Groups: "44 60 100 ",
  CapInh: "0000000000000000",
  CapPrm: "0000000000000000",
  CapEff: "0000000000000000",
  CapBnd: "0000000000000000",
  CapAmb: "0000000000000000",
  NoNewPrivs: "1",
};

function status(fields: Record<string, string | undefined>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}:\t${value ?? ""}\n`)
    .join("");
}

test("the expected identity is accepted", (t) => {
  t.is(identityMismatch(status(good), expected), undefined);
});

for (const [field, value] of [
  ["Uid", "0\t5\t5\t5"],
  ["Uid", "5\t0\t5\t5"],
  ["Uid", "5\t5\t0\t5"],
  ["Uid", "5\t5\t5\t0"],
  ["Uid", "5\t5\t5"],
  ["Gid", "60\t60\t0\t60"],
  ["Groups", "60 44"],
  ["Groups", "0 44 60 100"],
  ["Groups", ""],
  ["CapInh", "0000000000000001"],
  ["CapPrm", "0000000000000001"],
  ["CapEff", "0000000000000001"],
  ["CapBnd", "000001ffffffffff"],
  ["CapAmb", "0000000000000400"],
  ["NoNewPrivs", "0"],
  ...Object.keys(good).map((name) => [name, undefined] as const),
] as const) {
  test(`${field} ${value === undefined ? "missing" : JSON.stringify(value)} is a mismatch`, (t) => {
    t.regex(identityMismatch(status({ ...good, [field]: value }), expected) ?? "", new RegExp(`^${field}`));
  });
}

test("where nothing is dropped the ids still count", (t) => {
  const self = { uid: 5, gid: 60, groups: [], dropped: false };
  t.is(identityMismatch(status({ Uid: good.Uid, Gid: good.Gid }), self), undefined);
  t.regex(identityMismatch(status({ Uid: "0 0 0 0", Gid: good.Gid }), self) ?? "", /^Uid/);
});
