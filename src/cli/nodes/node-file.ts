/** The daemons that a user has given names, in a file of theirs: `$XDG_CONFIG_HOME/svc/nodes.json`, mode 0600. */
import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { SvcError } from "../../errors.ts";
import { xdgDir } from "../../lib/xdg.ts";
import type { CliHost } from "../host.ts";

/** How a daemon elsewhere is reached. Where the secrets lie, never what they are. */
export interface Node {
  readonly address: string;
  /** With https: a file with the token. */
  readonly token_file?: string;
  /** With https: a program that speaks docker's protocol of credential helpers. */
  readonly credential_helper?: string;
  /** With https: certificates that are trusted instead of the system's. */
  readonly ca_file?: string;
  /** With ssh: values of its `-o`. */
  readonly ssh_options?: readonly string[];
}

export interface NodeList {
  /** The node that commands go to which name none; absent: this machine. */
  readonly current?: string;
  readonly nodes: Readonly<Record<string, Node>>;
}

/** This machine's own name among the nodes. */
export const localNode = "local";
export const nodeName = /^[a-z0-9][a-z0-9._-]{0,63}$/;

export type NodeHome = Pick<CliHost, "env" | "home" | "uid">;

export function nodeFileOf(host: NodeHome): string {
  return join(xdgDir(host, "XDG_CONFIG_HOME", ".config"), "svc", "nodes.json");
}

/** @throws SvcError for a file that is broken, or that somebody else may have written: it names programs that are run */
export function readNodes(host: NodeHome): NodeList {
  const path = nodeFileOf(host);
  let descriptor: number;
  try {
    descriptor = openSync(path, "r");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // A home that may not be entered is somebody else's, as that of a user who became another one without `-`.
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
        `${path} may be another user's words: it must be yours alone (chmod 600)`,
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
