import { closeSync, readFileSync, readdirSync } from "node:fs";

/** As the kernel prints it in `/proc/<pid>/fdinfo`. */
const O_CLOEXEC = 0o2000000;

/**
 * Closes what this process has inherited beside 0, 1 and 2: nothing of the daemon's, or of whoever started the daemon, is
 * for its user or for the programs that it starts. Node opens its own descriptors close-on-exec, so one without that is
 * inherited; libuv's own attempt stops at the first gap in the numbers.
 */
export function closeInheritedDescriptors() {
  for (const name of readdirSync("/proc/self/fd")) {
    const fd = Number(name);
    if (fd <= 2) continue;
    try {
      const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
      if (flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0) closeSync(fd);
    } catch {
      // The descriptor of this very listing is gone by now.
    }
  }
}
