/** A user's named nodes, in the file `$XDG_CONFIG_HOME/svc/nodes.json` with mode 0600. */
import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  mkdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join, dirname } from "node:path";
import { SvcError } from "../../errors.ts";
import { xdgDir } from "../../lib/paths.ts";
import type { CliHost } from "../host.ts";

/** How to reach a remote daemon. Contains the location of secrets, never the secrets. */
export interface Node {
  readonly address: string;
  /** For https: a file with the token. */
  readonly token_file?: string;
  /** For https: a program that implements Docker's credential helper protocol. */
  readonly credential_helper?: string;
  /** For https: certificates that are trusted instead of the system's. */
  readonly ca_file?: string;
  /** For ssh: values of its `-o`. */
  readonly ssh_options?: readonly string[];
}

export interface NodeList {
  /** The default node of commands; absent: this host. */
  readonly current?: string;
  readonly nodes: Readonly<Record<string, Node>>;
}

/** The name of this host among the nodes. */
export const localNode = "local";
export const nodeName = /^[a-z0-9][a-z0-9._-]{0,63}$/;

export type NodeHome = Pick<CliHost, "env" | "home" | "uid">;

export function nodeFileOf(host: NodeHome): string {
  return join(xdgDir(host, "XDG_CONFIG_HOME", ".config"), "svc", "nodes.json");
}

/** @throws SvcError if the file is damaged, or another user could have written it: it names programs to run */
export function readNodes(host: NodeHome): NodeList {
  const path = nodeFileOf(host);
  let descriptor: number;
  try {
    descriptor = openSync(path, "r");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // An inaccessible home directory belongs to another user, for example after `su` without `-`.
    if (code === "ENOENT" || code === "ENOTDIR" || code === "EACCES") return { nodes: {} };
    throw new SvcError("not_possible", `the nodes in ${path} cannot be read: ${String(code)}`, {
      cause: error,
    });
  }
  try {
    const { uid, mode } = fstatSync(descriptor);
    if ((uid !== host.uid && uid !== 0) || (mode & 0o022) !== 0) {
      throw new SvcError(
        "not_possible",
        `${path} can be changed by other users: make it private (chmod 600)`,
      );
    }
    return checked(readFileSync(descriptor, "utf8"), path);
  } finally {
    closeSync(descriptor);
  }
}

function checked(text: string, path: string): NodeList {
  let list: Partial<NodeList> | null;
  try {
    list = JSON.parse(text) as Partial<NodeList> | null;
  } catch {
    list = null;
  }
  const nodes = Object.entries<Partial<Node> | null>(list?.nodes ?? {});
  if (
    list === null ||
    nodes.some(([name, node]) => !nodeName.test(name) || typeof node?.address !== "string")
  ) {
    throw new SvcError(
      "not_possible",
      `${path} is damaged; remove it, and add the nodes again: svc node add`,
    );
  }
  return { ...list, nodes: Object.fromEntries(nodes) as NodeList["nodes"] };
}

export function writeNodes(host: NodeHome, list: NodeList): void {
  const path = nodeFileOf(host);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const fresh = `${path}.${crypto.randomUUID()}`;
  try {
    writeFileSync(fresh, `${JSON.stringify(list, undefined, 2)}\n`, { mode: 0o600, flag: "wx", flush: true });
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
}
