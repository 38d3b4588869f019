/** Whose hands there are: a user is looked up when it is asked for, and its helper started when there is work. */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SvcError } from "../errors.ts";
import { noLog, type Log } from "../lib/log.ts";
import type { Terminal } from "../lib/terminal.ts";
import { HelperPool } from "./helper-pool.ts";
import { HostFiles, type HostFilesOptions } from "./host-files.ts";
import { HelperProcess } from "./helper-process.ts";
import { type JobCommand, type JobEnd, JobProcesses } from "./job-processes.ts";
import type { ExpectedIdentity } from "./helper/verify.mjs";
import { type Launch, launchAs, systemDirs } from "./launch.ts";
import { isOwnedDir, makeOwnedDir, removeEmptyDir } from "./owned-dir.ts";
import { OwnedTree } from "./owned-tree.ts";
import { type TerminalProgram, Terminals } from "./terminals.ts";
import { type User, type Users, createUsers } from "./user.ts";
import { Identity } from "./identity.ts";

/** All identities of the daemon. */
export interface Identities extends AsyncDisposable {
  /** The daemon's own uid. */
  readonly selfUid: number;
  /**
   * Looks the user up; starts nothing yet.
   * @throws `failed_precondition` for a uid without a passwd entry, `permission_denied` for another's uid when the daemon is not root.
   */
  as(uid: number): Promise<Identity>;
  /** The same user's hands for files of the host. @throws as `as` does */
  hostFiles(uid: number, options?: HostFilesOptions): Promise<HostFiles>;
  /**
   * Runs a job's command as a user, below a process of its own, which is no helper. Afterwards nothing that it started is
   * left, unless it is to be kept. @throws as `as` does; see {@link JobProcesses.run}
   */
  runJob(uid: number, command: JobCommand): Promise<JobEnd>;
  /** Runs a program at a terminal as a user. @throws as `as` does; SvcError `unavailable` when there is no terminal */
  openTerminal(uid: number, program: TerminalProgram): Promise<Terminal>;
  /**
   * Makes a directory of `uid` alone in a directory of the daemon's own, such as `<store>/run/<id>`.
   * The parent must not be writable by others. @throws `already_exists`.
   */
  createOwnedDir(path: string, uid: number): Promise<void>;
  /** Empties such a directory with its owner's identity, then removes it. Nothing there is fine. */
  removeOwnedDir(path: string, uid: number): Promise<{ freedBytes: number }>;
  /** A directory of the daemon's own with files of `uid` in it, such as `<store>/apps/<id>`, whether it is there or not. */
  tree(root: string, uid: number): Promise<OwnedTree>;
}

export interface IdentitiesOptions {
  /** Default: `helper.mjs` beside this module. Must be readable by every user. */
  helperPath?: string;
  /** The node that runs helpers. Default: the one that runs the daemon. */
  nodePath?: string;
  /** PATH of helpers and commands. Default: the usual system directories. */
  searchPath?: string;
  /** Where `setpriv` is looked for. Default: the usual system directories. */
  setprivDirs?: readonly string[];
  /** Helpers alive at once. Default 32. */
  maxHelpers?: number;
  /** Milliseconds until a helper without work is stopped. Default 30,000. */
  idleMs?: number;
  /** Default: a look-up of its own through `getent`. */
  users?: Users;
  /** Warnings: a helper that died. */
  log?: Pick<Log, "warn">;
}

/**
 * What lives for a moment has 12 MiB at most, not 48: in and after backups of 20,000 files that is a third to a half of all that a
 * helper takes, at no more of the processor's time.
 */
const helperOptions = "--max-semi-space-size=4";

export function createIdentities(options: IdentitiesOptions = {}): Identities {
  const {
    helperPath = fileURLToPath(new URL("helper.mjs", import.meta.url)),
    nodePath = process.execPath,
    searchPath = systemDirs.join(":"),
    setprivDirs = systemDirs,
    users = createUsers(),
    log = noLog,
  } = options;
  const selfUid = process.geteuid?.() ?? -1;
  const selfGid = process.getegid?.() ?? -1;
  const jobs = new JobProcesses(join(dirname(helperPath), "job-parent.sh"));
  const terminals = new Terminals(join(dirname(helperPath), "terminal-parent.sh"));

  async function expectedOf({ uid, ...user }: User): Promise<ExpectedIdentity> {
    const dropped = uid !== selfUid;
    return dropped
      ? { uid, gid: user.gid, groups: await users.groupsOf({ uid, ...user }), dropped }
      : { uid, gid: selfGid, groups: [], dropped };
  }

  async function launch(user: User, { dropped }: ExpectedIdentity, argv: readonly string[]): Promise<Launch> {
    return launchAs(user, { argv, searchPath, setprivDirs, drop: dropped });
  }

  async function startHelper(uid: number): Promise<HelperProcess> {
    const user = await users.byUid(uid);
    const expected = await expectedOf(user);
    const argv = [nodePath, helperPath, JSON.stringify(expected)];
    try {
      const program = await launch(user, expected, argv);
      // No argument: the single executable takes none of Node's.
      const env = { ...program.env, NODE_OPTIONS: helperOptions };
      return await HelperProcess.start({ ...program, env }, expected, user.name);
    } catch (error) {
      // The user may have changed since it was looked up: the next attempt looks again.
      users.forget();
      throw error;
    }
  }

  const pool = new HelperPool({
    start: startHelper,
    maxHelpers: options.maxHelpers ?? 32,
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

  async function identityOf(uid: number): Promise<Identity> {
    return new Identity(await findUser(uid), (request) => pool.request(uid, request));
  }

  return {
    selfUid,
    as: identityOf,
    async hostFiles(uid, hostOptions) {
      return new HostFiles(await findUser(uid), (request) => pool.request(uid, request), hostOptions);
    },
    async runJob(uid, command) {
      const user = await findUser(uid);
      const expected = await expectedOf(user);
      const program = await launch(user, expected, jobs.argv(expected, command));
      return jobs.run(program, { name: user.name, uid, gid: expected.gid }, command);
    },
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
      const identity = await identityOf(uid);
      const { freedBytes } = await identity.removeTree(path, ".");
      return { freedBytes: freedBytes + (await removeEmptyDir(path)) };
    },
    async tree(root, uid) {
      return new OwnedTree({ root, identity: await identityOf(uid), selfUid });
    },
    async [Symbol.asyncDispose]() {
      await pool[Symbol.asyncDispose]();
    },
  };
}
