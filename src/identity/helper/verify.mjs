/**
 * Whether a process has the identity that it was meant to get, read from the kernel's own account of it
 * (proc(5), `/proc/<pid>/status`).
 */

/**
 * @typedef {object} ExpectedIdentity
 * @property {number} uid
 * @property {number} gid
 * @property {readonly number[]} groups All groups, the primary one included; looked at only when `dropped`.
 * @property {boolean} dropped Whether privileges were to be dropped: no capabilities, `no_new_privs`.
 */

/**
 * @param {string} status Content of `/proc/<pid>/status`.
 * @param {ExpectedIdentity} expected
 * @returns {string | undefined} What is wrong, or `undefined` when all is as it should be.
 */
export function identityMismatch(status, expected) {
  const fields = new Map(
    status.split("\n").map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    }),
  );
  // Real, effective, saved and file system id: a saved root id would be a way back.
  for (const [field, id] of /** @type {const} */ ([
    ["Uid", expected.uid],
    ["Gid", expected.gid],
  ])) {
    const wanted = [id, id, id, id].join(" ");
    const found = fields.get(field)?.split(/\s+/).join(" ");
    if (found !== wanted) return `${field} is ${found ?? "missing"} instead of ${wanted}`;
  }
  if (!expected.dropped) return undefined;
  const found = fields.get("Groups")?.split(/\s+/).filter(Boolean).map(Number) ?? [];
  // The primary group need not be repeated among the supplementary ones.
  const groups = sortedIds([...found, expected.gid]);
  const wanted = sortedIds([...expected.groups, expected.gid]);
  if (groups !== wanted) return `Groups are ${groups} instead of ${wanted}`;
  for (const field of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
    const set = fields.get(field);
    if (set === undefined || !/^0+$/.test(set)) return `${field} is ${set ?? "missing"} instead of 0`;
  }
  const noNewPrivs = fields.get("NoNewPrivs");
  return noNewPrivs === "1" ? undefined : `NoNewPrivs is ${noNewPrivs ?? "missing"} instead of 1`;
}

/** @param {readonly number[]} ids */
function sortedIds(ids) {
  return [...new Set(ids)].sort((a, b) => a - b).join(" ");
}
