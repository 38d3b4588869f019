/** Opens isolated runs: chooses the uid and copies the files. */
import { PosixSpawn } from "../sys/posix-spawn.ts";
import { type CopiedFiles, removeCopies, removeLeftCopies, writeCopies } from "./file-copies.ts";
import type { ExpectedCredentials } from "./helper/verify.mjs";
import { IsolatedRun, type ContainedLaunch } from "./isolated-run.ts";
import { launchAs } from "./launch.ts";
import { findNamespaces } from "./process-namespace.ts";
import { chooseUnusedUid } from "./unused-uid.ts";
import type { User, Users } from "./user.ts";

export interface IsolatedRunsOptions {
  /** `isolated-run.sh`, readable by every user. */
  readonly scriptPath: string;
  /** See {@link writeCopies}. */
  readonly copiesPrefix: string;
  readonly users: Pick<Users, "isUnused">;
  /** PATH of the programs. */
  readonly searchPath: string;
  readonly setprivDirs: readonly string[];
  /** This process's own. */
  readonly self: { readonly uid: number; readonly gid: number };
}

export class IsolatedRuns {
  readonly #options: IsolatedRunsOptions;
  /** The uids of open runs. */
  readonly #uids = new Set<number>();
  #processes: PosixSpawn | undefined;
  #namespaces: ReturnType<typeof findNamespaces> | undefined;

  constructor(options: IsolatedRunsOptions) {
    this.#options = options;
  }

  /** @param user whose base environment the programs get */
  async open(user: User, copied: CopiedFiles): Promise<IsolatedRun> {
    const { copiesPrefix, scriptPath } = this.#options;
    const expected = await this.#credentials();
    const { uid, gid, dropped } = expected;
    const processes = (this.#processes ??= new PosixSpawn());
    try {
      const directory = await writeCopies(copiesPrefix, copied, dropped ? gid : undefined);
      return new IsolatedRun({
        ...{ directory, expected, scriptPath, processes },
        launch: (argv, where) => this.#launch({ ...user, uid, gid }, argv, { dropped, where, processes }),
        remove: async () => {
          await removeCopies(directory);
          this.#uids.delete(uid);
        },
      });
    } catch (error) {
      this.#uids.delete(uid);
      throw error;
    }
  }

  async removeLeft(): Promise<void> {
    await removeLeftCopies(this.#options.copiesPrefix);
  }

  async #launch(
    user: User,
    argv: readonly string[],
    { dropped, where, processes }: { dropped: boolean; where: "host" | undefined; processes: PosixSpawn },
  ): Promise<ContainedLaunch> {
    const { searchPath, setprivDirs } = this.#options;
    const program = await launchAs(user, { argv, searchPath, setprivDirs, drop: dropped, groups: "primary" });
    if (!dropped || where === "host") return { ...program, isContained: false };
    this.#namespaces ??= findNamespaces(processes, setprivDirs).catch((error: unknown) => {
      this.#namespaces = undefined;
      throw error;
    });
    const contained = await this.#namespaces;
    return { ...(contained?.(program) ?? program), isContained: contained !== undefined };
  }

  /** Without root, there is only one uid to choose. */
  async #credentials(): Promise<ExpectedCredentials> {
    const { self, users } = this.#options;
    if (self.uid !== 0) return { ...self, groups: [], dropped: false };
    for (;;) {
      const uid = await chooseUnusedUid(users);
      if (this.#uids.has(uid)) continue;
      this.#uids.add(uid);
      return { uid, gid: uid, groups: [], dropped: true };
    }
  }
}
