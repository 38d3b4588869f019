/** Local users and groups as listed by the host's name service: read with `getent`, cached for some seconds. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { parsePasswdLine } from "../run-as/user.ts";
import { invalidField } from "../errors.ts";

const cachedMs = 10_000;
const lookUpMs = 10_000;
const maxBytes = 32 << 20;

export interface SystemUser {
  name: string;
  uid: number;
  gid: number;
}

export interface SystemGroup {
  name: string;
  gid: number;
}

export interface Names {
  users: readonly SystemUser[];
  groups: readonly SystemGroup[];
  /** The first name with this number. */
  userName(uid: number): string;
  groupName(gid: number): string;
}

export class SystemIdentities {
  readonly #now: () => number;
  readonly #searchPath: string;
  #cached: { names: Promise<Names>; untilMs: number } | undefined;

  constructor(now: () => number, searchPath: string) {
    this.#now = now;
    this.#searchPath = searchPath;
  }

  names(): Promise<Names> {
    const nowMs = this.#now();
    if (this.#cached === undefined || this.#cached.untilMs <= nowMs) {
      const names = this.#read();
      this.#cached = { names, untilMs: nowMs + cachedMs };
      names.catch(() => (this.#cached = undefined));
    }
    return this.#cached.names;
  }

  /** @throws SvcError `invalid_request` for an unknown user */
  async uidOf(name: string): Promise<number> {
    const { users } = await this.names();
    return users.find((user) => user.name === name)?.uid ?? numberOf("owner", name, "user");
  }

  /** @throws SvcError `invalid_request` for an unknown group */
  async gidOf(name: string): Promise<number> {
    const { groups } = await this.names();
    return groups.find((group) => group.name === name)?.gid ?? numberOf("group", name, "group");
  }

  async #read(): Promise<Names> {
    const [passwd, group] = await Promise.all([this.#database("passwd"), this.#database("group")]);
    const users = passwd
      .split("\n")
      .flatMap((line) => parsePasswdLine(line) ?? [])
      .map(({ name, uid, gid }) => ({ name, uid, gid }))
      .sort(byName);
    const groups = group
      .split("\n")
      .flatMap((line) => parseGroupLine(line) ?? [])
      .sort(byName);
    const userNames = new Map(users.toReversed().map(({ name, uid }) => [uid, name]));
    const groupNames = new Map(groups.toReversed().map(({ name, gid }) => [gid, name]));
    return {
      users,
      groups,
      userName: (uid) => userNames.get(uid) ?? String(uid),
      groupName: (gid) => groupNames.get(gid) ?? String(gid),
    };
  }

  /** Falls back to the file when `getent` is missing or does not finish in time. */
  #database(name: "passwd" | "group"): Promise<string> {
    const options = {
      ...{ env: { PATH: this.#searchPath, LANG: "C" }, cwd: "/", encoding: "utf8" as const },
      ...{ timeout: lookUpMs, killSignal: "SIGKILL" as const, maxBuffer: maxBytes },
    };
    return new Promise((resolve, reject) => {
      execFile("getent", [name], options, (error, stdout) => {
        if (error === null) resolve(stdout);
        else readFile(`/etc/${name}`, "utf8").then(resolve, reject);
      });
    });
  }
}

function byName(one: { name: string }, other: { name: string }): number {
  return one.name < other.name ? -1 : 1;
}

/** A line of group(5). */
function parseGroupLine(line: string): SystemGroup | undefined {
  const [name, , gid] = line.split(":");
  return name && /^\d{1,10}$/.test(gid ?? "") ? { name, gid: Number(gid) } : undefined;
}

function numberOf(field: string, text: string, kind: string): number {
  if (/^\d{1,10}$/.test(text) && Number(text) < 2 ** 32 - 1) return Number(text);
  throw invalidField(field, `${JSON.stringify(text)} is not a ${kind} of this host`);
}
