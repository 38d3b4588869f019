/**
 * The users of the host as its name service knows them (files, LDAP, systemd-userdb): asked through `getent`, beside
 * the event loop. A host without `getent` is read from `/etc/passwd`.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { SvcError, failedPrecondition, invalidField } from "../errors.ts";

/** A passwd entry. */
export interface User {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
  readonly home: string;
  readonly shell: string;
}

export interface Users {
  /** @throws SvcError `failed_precondition` for a uid without a passwd entry, `invalid_argument` for what is no uid. */
  byUid(uid: number): Promise<User>;
  /** @throws SvcError `failed_precondition` for an unknown name, `invalid_argument` for what cannot be a name. */
  byName(name: string): Promise<User>;
  /** All groups of a user, the primary one included, as `initgroups(3)` would set them. */
  groupsOf(user: User): Promise<readonly number[]>;
  /** Forgets what is cached, so that the next look is fresh. */
  forget(): void;
}

export interface UsersOptions {
  /** Milliseconds an answer is kept. Default 5,000. */
  ttlMs?: number;
  /** Milliseconds a look-up may take. Default 10,000. */
  timeoutMs?: number;
  now?: () => number;
  /** Read where `getent` is missing. Default `/etc/passwd`. */
  passwdFile?: string;
  /** Directories where `getent` and `id` are found. */
  searchPath?: string;
}

const maxUid = 2 ** 32 - 2;
const maxCached = 1024;

/** Whether a number can be a uid or gid: 2^32-1 means "no change" to the kernel and never names anyone. */
export function isUid(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= maxUid;
}

/**
 * A uid from text, digits only.
 * @throws SvcError `invalid_argument` for signs, spaces, other bases, exponents and numbers above 2^32-2.
 */
export function parseUid(text: string, field = "uid"): number {
  const uid = /^(0|[1-9][0-9]{0,9})$/.test(text) ? Number(text) : -1;
  if (!isUid(uid)) throw invalidField(field, `${JSON.stringify(text)} must be a number from 0 to ${maxUid}`);
  return uid;
}

export function createUsers(options: UsersOptions = {}): Users {
  const {
    ttlMs = 5_000,
    timeoutMs = 10_000,
    now = Date.now,
    passwdFile = "/etc/passwd",
    searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  } = options;
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

  async function passwdEntry(key: string): Promise<User | undefined> {
    const run = await ask("getent", ["passwd", key]);
    if (run.missing) {
      const lines = (await readFile(passwdFile, "utf8")).split("\n").map(parsePasswdLine);
      return lines.find((user) => user && (user.name === key || String(user.uid) === key));
    }
    if (run.exitCode === 2) return undefined;
    if (run.exitCode !== 0) {
      throw new SvcError(
        "unavailable",
        "unavailable",
        `user ${key} cannot be looked up now: try again later`,
        {
          cause: run,
        },
      );
    }
    return parsePasswdLine(run.stdout.split("\n", 1)[0] ?? "");
  }

  function ask(program: string, args: string[]) {
    return runLookup(program, args, { PATH: searchPath, LANG: "C" }, timeoutMs);
  }

  return {
    async byUid(uid) {
      if (!isUid(uid)) throw invalidField("uid", `${uid} must be a number from 0 to ${maxUid}`);
      return cached(`uid ${uid}`, async () => {
        const user = await passwdEntry(String(uid));
        if (user?.uid !== uid) {
          throw failedPrecondition(
            "denied",
            `uid ${uid} has no passwd entry: add the user to the host first`,
          );
        }
        return user;
      });
    },
    async byName(name) {
      if (!/^[^-:\s\0][^:\s\0]{0,255}$/.test(name)) {
        throw invalidField("user", `${JSON.stringify(name)} is no user name`);
      }
      return cached(`name ${name}`, async () => {
        const user = await passwdEntry(name);
        // getent takes digits for a uid: an account must really be called that.
        if (user?.name !== name) {
          throw failedPrecondition("denied", `no user "${name}" on this host: add it first`);
        }
        return user;
      });
    },
    async groupsOf(user) {
      return cached(`groups ${user.name}`, async () => {
        const run = await ask("id", ["-G", "--", user.name]);
        const groups = run.stdout.trim().split(/\s+/).map(Number);
        if (run.exitCode !== 0 || !groups.every(isUid)) {
          throw failedPrecondition("denied", `the groups of user "${user.name}" cannot be read`, {
            cause: run,
          });
        }
        return groups;
      });
    },
    forget() {
      cache.clear();
    },
  };
}

/** A line of passwd(5), or `undefined` for a comment, a NIS marker or a damaged line. */
export function parsePasswdLine(line: string): User | undefined {
  const [name, , uid, gid, , home, shell] = line.split(":");
  if (!name || shell === undefined || !/^\d{1,10}$/.test(uid ?? "") || !/^\d{1,10}$/.test(gid ?? "")) {
    return undefined;
  }
  const user = { name, uid: Number(uid), gid: Number(gid), home: home || "/", shell: shell || "/bin/sh" };
  return isUid(user.uid) && isUid(user.gid) ? user : undefined;
}

interface Lookup {
  /** `null` when it was killed at its deadline or could not be started. */
  exitCode: number | null;
  stdout: string;
  missing: boolean;
}

function runLookup(
  program: string,
  args: string[],
  env: Record<string, string>,
  timeoutMs: number,
): Promise<Lookup> {
  return new Promise((resolve) => {
    execFile(
      program,
      args,
      { env, cwd: "/", timeout: timeoutMs, killSignal: "SIGKILL", maxBuffer: 1 << 20, encoding: "utf8" },
      (error, stdout) => {
        const code = error ? error.code : 0;
        resolve({ exitCode: typeof code === "number" ? code : null, stdout, missing: code === "ENOENT" });
      },
    );
  });
}
