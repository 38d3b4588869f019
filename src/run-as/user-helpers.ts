/** Runs work as users. A user is looked up on request; the helper process starts when there is work. */
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SvcError } from "../errors.ts";
import { FairQueue } from "../lib/fair-queue.ts";
import { noLog, type Log } from "../lib/log.ts";
import type { Terminal } from "../lib/terminal.ts";
import type { CopiedFiles } from "./file-copies.ts";
import { HelperPool } from "./helper-pool.ts";
import { HostFiles, type HostFilesOptions } from "./host-files.ts";
import { HelperProcess } from "./helper-process.ts";
import type { IsolatedRun } from "./isolated-run.ts";
import { IsolatedRuns } from "./isolated-runs.ts";
import { type JobCommand, type JobEnd, JobProcesses } from "./job-processes.ts";
import type { ExpectedCredentials } from "./helper/verify.mjs";
import { type Launch, launchAs, noInspector, systemDirs } from "./launch.ts";
import { isOwnedDir, makeOwnedDir, removeEmptyDir } from "./owned-dir.ts";
import { OwnedTree } from "./owned-tree.ts";
import { type TerminalProgram, Terminals } from "./terminals.ts";
import { type User, type Users, createUsers } from "./user.ts";
import { UserHelper } from "./user-helper.ts";

/** Gives access to the helper processes of all users. */
export interface UserHelpers extends AsyncDisposable {
  /** The daemon's own uid. */
  readonly selfUid: number;
  /**
   * Looks the user up; starts nothing yet.
   * @throws SvcError `not_possible` for a uid without a passwd entry, `denied` for another uid if the daemon is not
   * root
   */
  as(uid: number): Promise<UserHelper>;
  /** Operations on files of the host as the user. @throws as `as` does */
  hostFiles(uid: number, options?: HostFilesOptions): Promise<HostFiles>;
  /**
   * Runs a job's command as a user, below its own parent process instead of the helper. Leftover processes are killed,
   * unless `keepChildren` is set. @throws as `as` does; see {@link JobProcesses.run}
   */
  runJob(uid: number, command: JobCommand): Promise<JobEnd>;
  /**
   * Copies files for a program that runs as a uid that owns nothing else, or as the daemon's own without root. The
   * program's base environment is that of `uid`. @throws as `as` does
   */
  isolate(uid: number, copied: CopiedFiles): Promise<IsolatedRun>;
  /** Removes the copies of a daemon that was killed. */
  removeLeftCopies(): Promise<void>;
  /** Runs a program in a terminal as a user. @throws as `as` does; SvcError `unavailable` if no terminal can be opened */
  openTerminal(uid: number, program: TerminalProgram): Promise<Terminal>;
  /**
   * Creates a directory for `uid` in a daemon-owned directory, such as `<store>/run/<id>`. Others must not have write
   * access to the parent. @throws SvcError `already_exists`
   */
  createOwnedDir(path: string, uid: number): Promise<void>;
  /** Empties such a directory as its owner, then removes it. Succeeds if it does not exist. */
  removeOwnedDir(path: string, uid: number): Promise<{ freedBytes: number }>;
  /** A daemon-owned directory with files of `uid` in it, such as `<store>/apps/<id>`. It does not have to exist. */
  tree(root: string, uid: number): Promise<OwnedTree>;
}

export interface UserHelpersOptions {
  /** Default: `helper.mjs` next to this module. Every user must be able to read it. */
  helperPath?: string;
  /** The Node binary that runs helpers. Default: the daemon's. */
  nodePath?: string;
  /** PATH of helpers and commands. Default: the usual system directories. */
  searchPath?: string;
  /** Directories to search for `setpriv`. Default: the usual system directories. */
  setprivDirs?: readonly string[];
  /** Maximum number of helpers. Default: 32. */
  maxHelpers?: number;
  /** Milliseconds after which a busy helper no longer counts. Default: 10,000. */
  helperTurnMs?: number;
  /** Milliseconds until an idle helper is stopped. Default: 30,000. */
  idleMs?: number;
  /** Start of the paths of copied files, in a directory that every user can enter. Other daemons have others. */
  copiesPrefix?: string;
  /** Default: a new lookup through `getent`. */
  users?: Users;
  /** Shares the event loop between the messages of helpers and other work of their users. Default: one of its own. */
  fairQueue?: FairQueue;
  /** Receives warnings when a helper dies. */
  log?: Pick<Log, "warn">;
}

/**
 * Limits the young generation to 12 MiB instead of 48. Helpers then use a third to a half less memory during and after
 * backups of 20,000 files, for the same CPU time.
 */
const helperOptions = `--max-semi-space-size=4 ${noInspector}`;

export function createUserHelpers(options: UserHelpersOptions = {}): UserHelpers {
  const {
    helperPath = fileURLToPath(new URL("helper.mjs", import.meta.url)),
    nodePath = process.execPath,
    searchPath = systemDirs.join(":"),
    setprivDirs = systemDirs,
    copiesPrefix = join(tmpdir(), "svc-copies-"),
    users = createUsers(),
    fairQueue = new FairQueue(),
    log = noLog,
  } = options;
  const selfUid = process.geteuid?.() ?? -1;
  const selfGid = process.getegid?.() ?? -1;
  const jobs = new JobProcesses(join(dirname(helperPath), "job-parent.sh"));
  const isolated = new IsolatedRuns({
    scriptPath: join(dirname(helperPath), "isolated-run.sh"),
    ...{ copiesPrefix, users, searchPath, setprivDirs, self: { uid: selfUid, gid: selfGid } },
  });
  const terminals = new Terminals(join(dirname(helperPath), "terminal-parent.sh"));

  async function expectedOf({ uid, ...user }: User): Promise<ExpectedCredentials> {
    const dropped = uid !== selfUid;
    return dropped
      ? { uid, gid: user.gid, groups: await users.groupsOf({ uid, ...user }), dropped }
      : { uid, gid: selfGid, groups: [], dropped };
  }

  async function launch(
    user: User,
    { dropped }: ExpectedCredentials,
    argv: readonly string[],
  ): Promise<Launch> {
    return launchAs(user, { argv, searchPath, setprivDirs, drop: dropped });
  }

  async function startHelper(uid: number): Promise<HelperProcess> {
    const user = await users.byUid(uid);
    const expected = await expectedOf(user);
    const argv = [nodePath, helperPath, JSON.stringify(expected)];
    try {
      const program = await launch(user, expected, argv);
      // Not as an argument: the single executable accepts no Node options.
      const env = { ...program.env, NODE_OPTIONS: helperOptions };
      return await HelperProcess.start({ ...program, env }, expected, user.name, () =>
        fairQueue.wait(`uid ${uid}`),
      );
    } catch (error) {
      // The user may have changed since the lookup, so the next attempt looks it up again.
      users.forget();
      throw error;
    }
  }

  const pool = new HelperPool({
    start: startHelper,
    maxHelpers: options.maxHelpers ?? 32,
    turnMs: options.helperTurnMs ?? 10_000,
    idleMs: options.idleMs ?? 30_000,
    log,
  });

  async function findUser(uid: number): Promise<User> {
    const user = await users.byUid(uid);
    if (selfUid !== 0 && uid !== selfUid) {
      throw new SvcError(
        "denied",
        `svc runs as uid ${selfUid} and cannot act as uid ${uid}: only a daemon of root can`,
      );
    }
    return user;
  }

  async function helperOf(uid: number): Promise<UserHelper> {
    return new UserHelper(await findUser(uid), (request) => pool.request(uid, request));
  }

  return {
    selfUid,
    as: helperOf,
    async hostFiles(uid, hostOptions) {
      return new HostFiles(await findUser(uid), (request) => pool.request(uid, request), hostOptions);
    },
    async runJob(uid, command) {
      const user = await findUser(uid);
      const expected = await expectedOf(user);
      const program = await launch(user, expected, jobs.argv(expected, command));
      return jobs.run(program, { name: user.name, uid, gid: expected.gid }, command);
    },
    async isolate(uid, copied) {
      return isolated.open(await findUser(uid), copied);
    },
    removeLeftCopies: () => isolated.removeLeft(),
    async openTerminal(uid, program) {
      const user = await findUser(uid);
      const expected = await expectedOf(user);
      return terminals.open(expected, program, (argv) => launch(user, expected, argv));
    },
    async createOwnedDir(path, uid) {
      await makeOwnedDir(path, await findUser(uid), selfUid);
    },
    async removeOwnedDir(path, uid) {
      if (!(await isOwnedDir(path, uid, selfUid))) return { freedBytes: 0 };
      const userHelper = await helperOf(uid);
      const { freedBytes } = await userHelper.removeTree(path, ".");
      return { freedBytes: freedBytes + (await removeEmptyDir(path)) };
    },
    async tree(root, uid) {
      return new OwnedTree({ root, userHelper: await helperOf(uid), selfUid });
    },
    async [Symbol.asyncDispose]() {
      await pool[Symbol.asyncDispose]();
    },
  };
}
