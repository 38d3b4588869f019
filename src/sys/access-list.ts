/** Access control lists of files (acl(5)). */
import { loadLibc } from "./libc.ts";

/** Whether a file has more access control entries than its mode shows. Links are not followed. */
export function hasAccessList(path: string): Promise<boolean> {
  const lgetxattr = loadLibc().func("int64_t lgetxattr(const char *, const char *, void *, size_t)");
  return new Promise((resolve, reject) => {
    // Runs in a thread, because the file system may be remote.
    lgetxattr.async(path, "system.posix_acl_access", null, 0, (error: Error | null, sizeBytes: number) =>
      error === null ? resolve(sizeBytes > 0) : reject(error),
    );
  });
}
