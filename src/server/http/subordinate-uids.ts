/**
 * User IDs that a user can use inside a user namespace (subuid(5)). Each user usually has 65,536 of them. If
 * they counted as separate users, one user would have that many shares of the daemon's limits.
 */
import { readFileSync, statSync } from "node:fs";

interface Range {
  readonly first: number;
  readonly count: number;
}

export class SubordinateUids {
  readonly #path: string;
  #ranges: readonly Range[] = [];
  #version = "";

  constructor(path = "/etc/subuid") {
    this.#path = path;
  }

  /** Whether a uid is in a subordinate range. Reads the file again after a change, so that new ranges apply at once. */
  has(uid: number): boolean {
    const stats = statSync(this.#path, { throwIfNoEntry: false });
    const version = stats === undefined ? "" : `${stats.ino} ${stats.size} ${stats.mtimeMs}`;
    if (version !== this.#version) {
      this.#ranges = stats === undefined ? [] : rangesIn(readFileSync(this.#path, "utf8"));
      this.#version = version;
    }
    return this.#ranges.some(({ first, count }) => uid >= first && uid < first + count);
  }
}

/** Lines such as `ann:100000:65536`. */
export function rangesIn(text: string): Range[] {
  return text.split("\n").flatMap((line) => {
    const [, first, count] = /^[^:]+:(\d{1,10}):(\d{1,10})\s*$/.exec(line) ?? [];
    return first === undefined ? [] : [{ first: Number(first), count: Number(count) }];
  });
}
