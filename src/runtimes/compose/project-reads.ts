/** Reads each file of a project once: svc checks exactly the bytes that compose gets. Compose can read no other file. */
import { join } from "node:path";
import type { CopiedFiles } from "../../run-as/file-copies.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { EntryInfo } from "../../run-as/user-helper-types.ts";
import { invalid } from "./compose-sources.ts";

/** The most bytes of all files of a project, which are held in memory. */
const maxBytes = 16 * 1024 * 1024;

export class ProjectReads implements Pick<UserHelper, "readFile" | "stat"> {
  readonly #userHelper: Pick<UserHelper, "readFile" | "stat">;
  /** By path relative to the app's directory. */
  readonly #entries = new Map<string, Promise<EntryInfo | undefined>>();
  readonly #contents = new Map<string, Promise<Buffer>>();
  readonly #files = new Map<string, Buffer>();
  readonly #directories = new Set<string>();
  #bytes = 0;

  constructor(userHelper: Pick<UserHelper, "readFile" | "stat">) {
    this.#userHelper = userHelper;
  }

  stat(root: string, path: string): Promise<EntryInfo | undefined> {
    return remembered(this.#entries, path, async () => {
      const entry = await this.#userHelper.stat(root, path);
      if (entry?.type === "directory") this.#directories.add(join(root, path));
      return entry;
    });
  }

  /** @throws SvcError `package_invalid` if all files together are too large */
  readFile(root: string, path: string, options?: { maxBytes?: number }): Promise<Buffer> {
    return remembered(this.#contents, path, async () => {
      const bytes = await this.#userHelper.readFile(root, path, options);
      this.#bytes += bytes.length;
      if (this.#bytes > maxBytes)
        throw invalid(path, `the files that the project reads have more than ${maxBytes} bytes; use fewer`);
      this.#files.set(join(root, path), bytes);
      return bytes;
    });
  }

  /** Files read so far. */
  get copied(): CopiedFiles {
    return { files: this.#files, directories: this.#directories };
  }
}

function remembered<T>(known: Map<string, Promise<T>>, key: string, ask: () => Promise<T>): Promise<T> {
  const answer = known.get(key) ?? ask();
  known.set(key, answer);
  return answer;
}
