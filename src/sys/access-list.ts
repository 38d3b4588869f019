/** Access control lists of files (acl(5)). All calls run in a thread, because the file system may be remote. */
import { constants } from "node:os";
import { loadLibc, nativeError } from "./libc.ts";

const attribute = "system.posix_acl_access";
/** `ACL_UNDEFINED_ID` of linux/posix_acl.h. */
const noId = 0xffff_ffff;
/** Tags and version of linux/posix_acl.h and linux/posix_acl_xattr.h. */
const tags = { owner: 0x01, user: 0x02, group: 0x04, mask: 0x10, others: 0x20 };
const version = 2;
const [all, listAndEnter, nothing] = [7, 5, 0];

/** Whether a file has more access control entries than its mode shows. Links are not followed. */
export function hasAccessList(path: string): Promise<boolean> {
  const lgetxattr = loadLibc().func("int64_t lgetxattr(const char *, const char *, void *, size_t)");
  return new Promise((resolve, reject) => {
    lgetxattr.async(path, attribute, null, 0, (error: Error | null, sizeBytes: number) =>
      error === null ? resolve(sizeBytes > 0) : reject(error),
    );
  });
}

/**
 * Lets one user list a directory and walk through it, besides its owner. Its group cannot, although its mode becomes 0750:
 * the group bits are the mask of the list. Links are not followed.
 * @returns false if the file system does not support access control lists
 * @throws Error with the `code` of the system
 */
export function openOnlyTo(path: string, uid: number): Promise<boolean> {
  const lsetxattr = loadLibc().func("int lsetxattr(const char *, const char *, const void *, size_t, int)");
  const list = encodeList([
    [tags.owner, all, noId],
    [tags.user, listAndEnter, uid],
    [tags.group, nothing, noId],
    [tags.mask, listAndEnter, noId],
    [tags.others, nothing, noId],
  ]);
  return new Promise((resolve, reject) => {
    lsetxattr.async(path, attribute, list, list.length, 0, (error: Error | null, result: number) => {
      const isSet = error === null && result === 0;
      const failure: NodeJS.ErrnoException | undefined = isSet
        ? undefined
        : (error ?? nativeError("lsetxattr"));
      if (failure === undefined) resolve(true);
      else if (failure.errno === -constants.errno.EOPNOTSUPP) resolve(false);
      else reject(failure);
    });
  });
}

/** @param entries in the kernel's order */
function encodeList(entries: readonly (readonly [tag: number, permissions: number, id: number])[]): Buffer {
  const bytes = Buffer.alloc(4 + 8 * entries.length);
  bytes.writeUInt32LE(version, 0);
  for (const [index, [tag, permissions, id]] of entries.entries()) {
    const at = 4 + 8 * index;
    bytes.writeUInt16LE(tag, at);
    bytes.writeUInt16LE(permissions, at + 2);
    bytes.writeUInt32LE(id, at + 4);
  }
  return bytes;
}
