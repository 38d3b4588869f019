/** Measures the disk usage of a tree. */
import { withParent } from "./host-path.mjs";
import { spell } from "./spelling.mjs";
import { treeEntries } from "./tree-entries.mjs";

const blockBytes = 512;
/** Files with several links that are remembered. */
const maxLinked = 2_000_000;

/** @typedef {{ path: string[], diskBytes: number, sizeBytes: number, entries: number, failed: number }} Sum */

/**
 * @param {import("./syscalls.mjs").Syscalls} syscalls
 * @param {import("./host-path.mjs").GuardedPath & { depth: number }} args
 * @param {(record: object) => Promise<void>} report
 * @param {AbortSignal} signal
 */
export async function diskUsage(syscalls, { depth, ...target }, report, signal) {
  await withParent(syscalls, target, { follow: true }, async ({ parent, name }) => {
    const sums = new Sums();
    const options = { stays: true, fail: () => sums.fail() };
    for await (const entry of treeEntries(parent, name, signal, options)) {
      if (entry.isLeft) continue;
      for (const sum of sums.leaveTo(entry.path.length - 1)) await reportSum(sum, depth, report);
      sums.add(entry);
      await report({ entries: sums.entries });
    }
    for (const sum of sums.leaveTo(0)) await reportSum(sum, depth, report);
  });
}

/**
 * @param {Sum} sum
 * @param {number} depth
 * @param {(record: object) => Promise<void>} report
 */
async function reportSum({ path, ...sum }, depth, report) {
  const level = path.length - 1;
  if (level <= depth) await report({ sum, level, path: path.slice(1).map(spell).join("/") });
}

/** Running sums of the directories on the current path of the walk. */
class Sums {
  /** @type {Sum[]} */
  #open = [];
  /** Files with several links, by device and inode. */
  #linked = new Set();
  entries = 0;

  /** @param {import("./tree-entries.mjs").TreeEntry} entry */
  add({ path, stats }) {
    this.entries++;
    if (stats.isDirectory() || this.#open.length === 0) {
      this.#open.push({ path, diskBytes: 0, sizeBytes: 0, entries: 0, failed: 0 });
    }
    const sum = this.#open.at(-1);
    if (!sum) return;
    sum.entries++;
    if (stats.nlink > 1n && !stats.isDirectory()) {
      const key = `${stats.dev}:${stats.ino}`;
      if (this.#linked.has(key)) return;
      if (this.#linked.size < maxLinked) this.#linked.add(key);
    }
    sum.diskBytes += Number(stats.blocks) * blockBytes;
    if (stats.isFile()) sum.sizeBytes += Number(stats.size);
  }

  fail() {
    const sum = this.#open.at(-1);
    if (sum) sum.failed++;
  }

  /**
   * @param {number} depth how many directories stay open
   * @returns {Generator<Sum, void, void>} the finished sums, each added to its parent
   */
  *leaveTo(depth) {
    while (this.#open.length > depth) {
      const done = this.#open.pop();
      const above = this.#open.at(-1);
      if (!done) return;
      if (above) {
        above.diskBytes += done.diskBytes;
        above.sizeBytes += done.sizeBytes;
        above.entries += done.entries;
        above.failed += done.failed;
      }
      yield done;
    }
  }
}
