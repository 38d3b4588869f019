/** Converts the kernel's ACLs to the text that tar(1) and setfacl(1) accept; see acl(5) and posix_acl_xattr.h. */

const versionBytes = 4;
const entryBytes = 8;

/** @type {ReadonlyMap<number, string>} */
const tags = new Map([
  [0x01, "user"],
  [0x02, "user"],
  [0x04, "group"],
  [0x08, "group"],
  [0x10, "mask"],
  [0x20, "other"],
]);
const [namedUser, namedGroup] = [0x02, 0x08];

/**
 * @param {Buffer} list
 * @returns {string} users and groups are numbers
 */
export function accessText(list) {
  const entries = [];
  for (let at = versionBytes; at + entryBytes <= list.length; at += entryBytes) {
    const tag = list.readUInt16LE(at);
    const rights = list.readUInt16LE(at + 2);
    const whom = tag === namedUser || tag === namedGroup ? String(list.readUInt32LE(at + 4)) : "";
    const letters = `${rights & 4 ? "r" : "-"}${rights & 2 ? "w" : "-"}${rights & 1 ? "x" : "-"}`;
    entries.push(`${tags.get(tag) ?? "other"}:${whom}:${letters}`);
  }
  return entries.join(",");
}
