/** Reads one table of the configuration file. */
import { isIP } from "node:net";
import { isAbsolute, resolve } from "node:path";
import { parseImageReference } from "../engine/image-reference.ts";
import { parseSubnet } from "../engine/subnets.ts";
import type { FieldViolation } from "../errors.ts";
import { hostName, splitHost } from "../lib/host-name.ts";
import { isObject } from "../lib/json.ts";

/** Records which keys were read, so that the rest can be rejected. */
export class TableReader {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #prefix: string;
  readonly #keysRead = new Set<string>();
  readonly #violations: FieldViolation[];
  readonly #children: TableReader[] = [];

  constructor(values: Readonly<Record<string, unknown>>, prefix: string, violations: FieldViolation[] = []) {
    this.#values = values;
    this.#prefix = prefix;
    this.#violations = violations;
  }

  #take(key: string): unknown {
    this.#keysRead.add(key);
    return this.#values[key];
  }

  #reject(key: string, description: string): void {
    this.#violations.push({ field: this.#prefix + key, description });
  }

  #child(values: unknown, key: string): TableReader {
    if (!isObject(values)) this.#reject(key, "must be a table");
    const child = new TableReader(isObject(values) ? values : {}, `${this.#prefix}${key}.`, this.#violations);
    this.#children.push(child);
    return child;
  }

  table(key: string): TableReader {
    return this.#child(this.#take(key) ?? {}, key);
  }

  tables(key: string): TableReader[] {
    const value = this.#take(key) ?? [];
    if (!Array.isArray(value)) {
      this.#reject(key, `must be an array of tables: [[${key}]]`);
      return [];
    }
    return value.map((entry, at) => this.#child(entry, `${key}[${at}]`));
  }

  string(key: string): string | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (typeof value === "string" && value !== "") return value;
    this.#reject(key, "must be a text that is not empty");
    return undefined;
  }

  boolean(key: string): boolean | undefined {
    const value = this.#take(key);
    if (typeof value === "boolean" || value === undefined) return value;
    this.#reject(key, "must be true or false");
    return undefined;
  }

  required(key: string): string {
    if (this.#values[key] === undefined) this.#reject(key, "is missing");
    return this.string(key) ?? "";
  }

  strings(key: string): readonly string[] | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (Array.isArray(value) && value.every((entry) => typeof entry === "string")) return value;
    this.#reject(key, "must be a list of texts");
    return undefined;
  }

  /** A table of environment variables. */
  environment(key: string): Readonly<Record<string, string>> | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (isObject(value)) {
      const entries = Object.entries(value);
      if (entries.every(isVariable)) return Object.fromEntries(entries);
    }
    this.#reject(key, "must be a table of texts by the names of environment variables");
    return undefined;
  }

  directories(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const relative = value?.find((directory) => !isAbsolute(directory) || directory.includes(":"));
    if (relative !== undefined) this.#reject(key, `"${relative}" must be an absolute path without a colon`);
    return value;
  }

  /** References of images; one may end with `*`. */
  images(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const wrong = value?.find((pattern) => pattern !== "*" && !isImageName(pattern.replace(/\*$/, "x")));
    if (wrong !== undefined)
      this.#reject(key, `"${wrong}" must be the name of an image, such as "nginx:1.27" or "team/*"`);
    return value;
  }

  sourceName(key: string): string {
    const value = this.required(key);
    if (value !== "" && !/^[a-z0-9][a-z0-9._-]{0,63}$/.test(value)) {
      this.#reject(
        key,
        `"${value}" must be 1 to 64 of a-z, 0-9, ".", "_", "-", and begin with a letter or digit`,
      );
    }
    return value;
  }

  word<T extends string>(key: string, words: readonly T[]): T | undefined {
    const value = this.string(key);
    if (value === undefined || words.includes(value as T)) return value as T | undefined;
    this.#reject(key, `"${value}" must be one of ${words.join(", ")}`);
    return undefined;
  }

  integer(key: string, { min, max }: { min: number; max: number }): number | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (Number.isInteger(value) && Number(value) >= min && Number(value) <= max) return Number(value);
    this.#reject(key, `${JSON.stringify(value)} must be a whole number from ${min} to ${max}`);
    return undefined;
  }

  /** A URL, unchanged; `./…` and `../…` are relative to the configuration file. */
  location(key: string, baseDir: string): string {
    const value = this.required(key);
    return /^\.\.?(\/|$)/.test(value) ? resolve(baseDir, value) : value;
  }

  /** A path; a relative one is relative to the configuration file. */
  path(key: string, baseDir: string, fallback: string): string {
    const value = this.string(key);
    if (value === undefined) return fallback;
    return isAbsolute(value) ? resolve(value) : resolve(baseDir, value);
  }

  address(key: string, fallback: { host: string; port: number }): { host: string; port: number } {
    const value = this.string(key);
    if (value === undefined) return fallback;
    const match = /^(?:\[([0-9A-Fa-f:]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(value);
    const port = Number(match?.[3]);
    if (match === null || port > 65535) {
      this.#reject(key, `"${value}" must be host:port, such as 127.0.0.1:8420 or [::1]:8420`);
      return fallback;
    }
    return { host: match[1] ?? match[2] ?? "", port };
  }

  ipAddress(key: string): string | undefined {
    const value = this.string(key);
    if (value === undefined || isIP(value) > 0) return value;
    this.#reject(key, `"${value}" must be an IP address, such as 127.0.0.1`);
    return undefined;
  }

  /** Host names and IP addresses without port. */
  hostNames(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const wrong = value?.find((name) => hostName(name) === undefined || splitHost(name)?.port !== undefined);
    if (wrong !== undefined)
      this.#reject(key, `"${wrong}" must be a host name without scheme and port, such as svc.example.org`);
    return value;
  }

  /** Host names and IP addresses, with or without port. IPv6 addresses are in brackets. */
  hosts(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const wrong = value?.find((name) => splitHost(name) === undefined);
    if (wrong !== undefined)
      this.#reject(key, `"${wrong}" must be a host without scheme, such as git.lan or 192.168.1.20:3000`);
    return value;
  }

  /** Hosts of registries, `*.domain` for all hosts below one, and `*` for all. */
  registries(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const wrong = value?.find((entry) => entry !== "*" && !isRegistry(entry.replace(/^\*\./, "")));
    if (wrong !== undefined)
      this.#reject(
        key,
        `"${wrong}" must be a registry as in image names, such as ghcr.io or *.pkg.dev, or *`,
      );
    return value;
  }

  /** IP addresses, and ranges of them. */
  networks(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const wrong = value?.find((range) => !isNetwork(range));
    if (wrong !== undefined)
      this.#reject(key, `"${wrong}" must be an IP address or a range, such as 127.0.0.1 or 10.0.0.0/8`);
    return value;
  }

  /** A range of IPv4 addresses, large enough for one network. */
  subnet(key: string): string | undefined {
    const value = this.string(key);
    const { start, end } = (value === undefined ? undefined : parseSubnet(value)) ?? { start: 0, end: 0 };
    if (value === undefined || end - start >= 16) return value;
    this.#reject(key, `"${value}" must be a range of 16 IPv4 addresses or more, such as 10.201.0.0/16`);
    return undefined;
  }

  /** The violations in this table and its subtables, including unknown keys. */
  finish(): FieldViolation[] {
    for (const key of Object.keys(this.#values)) {
      if (!this.#keysRead.has(key)) this.#reject(key, "is not a setting of svc");
    }
    for (const child of this.#children) child.finish();
    return this.#violations;
  }
}

function isNetwork(text: string): boolean {
  const [, address = "", bits] = /^([^/%]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  return family > 0 && Number(bits ?? 0) <= (family === 6 ? 128 : 32);
}

/** Whether image names can begin with the host: `team/web` does not begin with one, because it is on Docker Hub. */
function isRegistry(host: string): boolean {
  return isImageName(`${host}/x`) && parseImageReference(`${host}/x`).host === host;
}

function isImageName(text: string): boolean {
  try {
    parseImageReference(text);
    return true;
  } catch {
    return false;
  }
}

/** Whether an entry of a table is an environment variable. */
function isVariable(entry: [string, unknown]): entry is [string, string] {
  const [name, text] = entry;
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && typeof text === "string" && !text.includes("\0");
}
