import type { ExpectedCredentials } from "./helper/verify.mjs";

/** Lines of `/proc/self/status` of a process with these credentials; see `credentialsMismatch`. */
export function statusLines({ uid, gid, groups, dropped }: ExpectedCredentials): string[] {
  const four = (id: number): string => Array.from({ length: 4 }, () => id).join("\t");
  const ids = [`Uid:\t${four(uid)}`, `Gid:\t${four(gid)}`];
  if (!dropped) return ids;
  const all = [...new Set([...groups, gid])].sort((a, b) => a - b).join(" ");
  const sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map((set) => `${set}:\t${"0".repeat(16)}`);
  return [...ids, `Groups:\t${all}`, ...sets, "NoNewPrivs:\t1"];
}
