/** Checks that a process runs as the expected user, from what the kernel reports about it (proc(5), `/proc/<pid>/status`). */

/**
 * @typedef {object} ExpectedCredentials
 * @property {number} uid
 * @property {number} gid
 * @property {readonly number[]} groups all groups, including the primary one; checked only if `dropped`
 * @property {boolean} dropped whether privileges must be dropped: no capabilities, `no_new_privs`
 */

/**
 * @param {string} status content of `/proc/<pid>/status`
 * @param {ExpectedCredentials} expected
 * @returns {string | undefined} the mismatch, or `undefined` if everything is as expected
 */
export function credentialsMismatch(status, expected) {
  const fields = new Map(
    status.split("\n").map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    }),
  );
  // Real, effective, saved and file system ID: with a saved root ID the process could become root again.
  for (const [field, id] of /** @type {const} */ ([
    ["Uid", expected.uid],
    ["Gid", expected.gid],
  ])) {
    const required = [id, id, id, id].join(" ");
    const found = fields.get(field)?.split(/\s+/).join(" ");
    if (found !== required) return `${field} is ${found ?? "missing"} instead of ${required}`;
  }
  if (!expected.dropped) return undefined;
  const found = fields.get("Groups")?.split(/\s+/).filter(Boolean).map(Number) ?? [];
  // The primary group does not have to be among the supplementary groups.
  const groups = sortedIds([...found, expected.gid]);
  const required = sortedIds([...expected.groups, expected.gid]);
  if (groups !== required) return `Groups are ${groups} instead of ${required}`;
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
