import { readFile, rename, writeFile } from "node:fs/promises";

/**
 * A counter stored in a file. Writes run one at a time and replace the whole file, so that readers never see a
 * partial number.
 * @param {string} file
 */
export async function createVisits(file) {
  let visits = await readCount(file);
  let writing = Promise.resolve();
  let pending = false;

  async function write() {
    pending = false;
    try {
      await writeFile(`${file}.new`, `${visits}\n`);
      await rename(`${file}.new`, file);
    } catch (error) {
      console.error(`cannot keep the count in ${file}: ${error instanceof Error ? error.message : error}`);
    }
  }

  return {
    /** Counts one more and returns the new number. */
    add() {
      visits += 1;
      if (!pending) {
        pending = true;
        writing = writing.then(write);
      }
      return visits;
    },
  };
}

/** @param {string} file */
async function readCount(file) {
  try {
    return Number.parseInt(await readFile(file, "utf8"), 10) || 0;
  } catch {
    return 0;
  }
}
