import { closeSync, readFileSync, readdirSync } from "node:fs";

/** As printed in `/proc/<pid>/fdinfo`. */
const O_CLOEXEC = 0o2000000;

/**
 * Closes all inherited descriptors except 0, 1 and 2, so that the user and their programs get none of the daemon's.
 * Node opens its own descriptors close-on-exec, so any without that flag is inherited. libuv's own attempt stops at the
 * first gap in the numbers.
 */
export function closeInheritedDescriptors() {
  for (const name of readdirSync("/proc/self/fd")) {
    const fd = Number(name);
    if (fd <= 2) continue;
    try {
      const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
      if (flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0) closeSync(fd);
    } catch {
      // The descriptor of this directory listing is closed by now.
    }
  }
}
