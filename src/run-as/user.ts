/**
 * Users of the host from its name service (files, LDAP, systemd-userdb), through `getent`, without blocking the event
 * loop. On a host without `getent`, `/etc/passwd` is read.
 */
import { closeSync, constants as fileConstants, openSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { SvcError, invalidField } from "../errors.ts";
import { PosixSpawn } from "../sys/posix-spawn.ts";
import { findProgram } from "./find-program.ts";

/** A passwd entry. */
export interface User {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
  readonly home: string;
  readonly shell: string;
}

export interface Users {
  /** @throws SvcError `not_possible` for a uid without a passwd entry, `invalid_request` for a number that is not a uid */
  byUid(uid: number): Promise<User>;
  /** @throws SvcError `not_possible` for an unknown name, `invalid_request` for an invalid name */
  byName(name: string): Promise<User>;
  /** All groups of a user, including the primary one, as `initgroups(3)` would set them. */
  groupsOf(user: User): Promise<readonly number[]>;
  /** Whether neither a user nor a group has this ID. False if it cannot be found out. */
  isUnused(id: number): Promise<boolean>;
  /** Clears the cache, so that the next lookup is fresh. */
  forget(): void;
}

export interface UsersOptions {
  /** Milliseconds to cache a result. Default: 5,000. */
  ttlMs?: number;
  /** Milliseconds for a lookup. Default: 10,000. */
  timeoutMs?: number;
  now?: () => number;
  /** Read if `getent` is missing. Default: `/etc/passwd`. */
  passwdFile?: string;
  /** Directories to search for `getent` and `id`. */
  searchPath?: string;
}

const maxUid = 2 ** 32 - 2;
const maxCached = 1024;
const maxAnswerBytes = 1 << 20;

/** Whether a number can be a uid or gid. The kernel uses 2^32-1 for "no change", so it never identifies anyone. */
export function isUid(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= maxUid;
}

export function createUsers(options: UsersOptions = {}): Users {
  const {
    ttlMs = 5_000,
    timeoutMs = 10_000,
    now = Date.now,
    passwdFile = "/etc/passwd",
    searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  } = options;
  const lookups = new Lookups();
  const cache = new Map<string, { until: number; answer: Promise<unknown> }>();

  function cached<T>(key: string, ask: () => Promise<T>): Promise<T> {
    const hit = cache.get(key);
    if (hit && hit.until > now()) return hit.answer as Promise<T>;
    if (cache.size >= maxCached) cache.clear();
    const answer = ask();
    const entry = { until: now() + ttlMs, answer };
    cache.set(key, entry);
    answer.catch(() => cache.get(key) === entry && cache.delete(key));
    return answer;
  }

  async function readPasswdFile(key: string): Promise<User | undefined> {
    const lines = (await readFile(passwdFile, "utf8")).split("\n").map(parsePasswdLine);
    return lines.find((user) => user && (user.name === key || String(user.uid) === key));
  }

  async function passwdEntry(key: string): Promise<User | undefined> {
    // Every host has root in this file, so the daemon's first lookup does not wait for a process.
    const root = key === "0" ? await readPasswdFile(key).catch(() => undefined) : undefined;
    if (root !== undefined) return root;
    const run = await ask("getent", ["passwd", key]);
    if (run.missing) return readPasswdFile(key);
    if (run.exitCode === 2) return undefined;
    if (run.exitCode !== 0) {
      throw new SvcError("unavailable", `user ${key} cannot be looked up now: try again later`, {
        cause: run,
      });
    }
    return parsePasswdLine(run.stdout.split("\n", 1)[0] ?? "");
  }

  async function hasGroup(id: number): Promise<boolean> {
    const run = await ask("getent", ["group", String(id)]);
    if (!run.missing) return run.exitCode !== 2;
    const lines = (await readFile("/etc/group", "utf8")).split("\n");
    return lines.some((line) => line.split(":")[2] === String(id));
  }

  function ask(program: string, args: string[]) {
    return lookups.run(program, args, searchPath.split(":"), timeoutMs);
  }

  return {
    async byUid(uid) {
      if (!isUid(uid)) throw invalidField("uid", `${uid} must be a number from 0 to ${maxUid}`);
      return cached(`uid ${uid}`, async () => {
        const user = await passwdEntry(String(uid));
        if (user?.uid !== uid) {
          throw new SvcError(
            "not_possible",
            `uid ${uid} has no passwd entry; create the user with: useradd --uid ${uid} NAME`,
          );
        }
        return user;
      });
    },
    async byName(name) {
      if (!/^[^-:\s\0][^:\s\0]{0,255}$/.test(name)) {
        throw invalidField("user", `${JSON.stringify(name)} is not a valid user name`);
      }
      return cached(`name ${name}`, async () => {
        const user = await passwdEntry(name);
        // getent treats digits as a uid, but the account's name must match.
        if (user?.name !== name) {
          throw new SvcError("not_possible", `no user "${name}" on this host: add it first`);
        }
        return user;
      });
    },
    async groupsOf(user) {
      return cached(`groups ${user.name}`, async () => {
        const run = await ask("id", ["-G", "--", user.name]);
        const groups = run.stdout.trim().split(/\s+/).map(Number);
        if (run.exitCode !== 0 || !groups.every(isUid)) {
          throw new SvcError("not_possible", `the groups of user "${user.name}" cannot be read`, {
            cause: run,
          });
        }
        return groups;
      });
    },
    async isUnused(id) {
      const [user, isGroup] = await Promise.all([
        passwdEntry(String(id)).catch(() => "unknown"),
        hasGroup(id).catch(() => true),
      ]);
      return user === undefined && !isGroup;
    },
    forget() {
      cache.clear();
    },
  };
}

/** Parses a line of passwd(5). Returns `undefined` for a comment, a NIS marker or a damaged line. */
export function parsePasswdLine(line: string): User | undefined {
  const [name, , uid, gid, , home, shell] = line.split(":");
  if (!name || shell === undefined || !/^\d{1,10}$/.test(uid ?? "") || !/^\d{1,10}$/.test(gid ?? "")) {
    return undefined;
  }
  const user = { name, uid: Number(uid), gid: Number(gid), home: home || "/", shell: shell || "/bin/sh" };
  return isUid(user.uid) && isUid(user.gid) ? user : undefined;
}

interface Lookup {
  /** Undefined if the program was killed at its deadline or could not be started. */
  exitCode: number | undefined;
  stdout: string;
  missing: boolean;
}

/** Not `child_process`: hundreds of users cause hundreds of lookups, and each fork would block the event loop. */
class Lookups {
  #processes: PosixSpawn | undefined;

  /** @param dirs directories to search for the program */
  async run(
    program: string,
    args: readonly string[],
    dirs: readonly string[],
    timeoutMs: number,
  ): Promise<Lookup> {
    // Trying to start the program in each directory would cost a process per attempt.
    const command = await findProgram(program, dirs);
    if (command === undefined) return { exitCode: undefined, stdout: "", missing: true };
    try {
      return await this.#execute(command, args, dirs.join(":"), timeoutMs);
    } catch {
      return { exitCode: undefined, stdout: "", missing: false };
    }
  }

  async #execute(command: string, args: readonly string[], path: string, timeoutMs: number): Promise<Lookup> {
    const processes = (this.#processes ??= new PosixSpawn());
    const { stream, fd } = processes.openPipe("read");
    using handedDown = new DisposableStack();
    handedDown.adopt(fd, closeSync);
    const nothing = handedDown.adopt(openSync("/dev/null", fileConstants.O_RDWR), closeSync);
    try {
      const env = { PATH: path, LANG: "C" };
      const pid = await processes.start({ command, args, env, fds: [nothing, fd, nothing] });
      handedDown.dispose();
      const timer = setTimeout(() => process.kill(pid, "SIGKILL"), timeoutMs);
      const pieces: Buffer[] = [];
      for await (const piece of stream) {
        pieces.push(piece as Buffer);
        if (pieces.reduce((sum, { length }) => sum + length, 0) > maxAnswerBytes)
          process.kill(pid, "SIGKILL");
      }
      const exitCode = await processes.reap(pid);
      clearTimeout(timer);
      return { exitCode, stdout: Buffer.concat(pieces).toString("utf8"), missing: false };
    } finally {
      stream.destroy();
    }
  }
}
