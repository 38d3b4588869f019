/** Chooses the daemon of a command: on this host, or remote. */
import { notFound } from "../../errors.ts";
import { UsageError } from "../output/failure.ts";
import type { CliHost } from "../host.ts";
import { localNode, readNodes, type Node } from "./node-file.ts";

export interface NodeOptions {
  readonly socket?: string | undefined;
  /** An address. */
  readonly host?: string | undefined;
  /** A name. */
  readonly node?: string | undefined;
}

export interface NamedNode extends Node {
  /** Its name, or its address if it has no name. */
  readonly name: string;
}

/**
 * Options take precedence over environment variables, which take precedence over `svc node use`.
 * @returns undefined for this host
 */
export function chooseNode(
  host: Pick<CliHost, "env" | "home" | "uid">,
  options: NodeOptions,
): NamedNode | undefined {
  const { env } = host;
  const given = [options.socket, options.host, options.node].filter((each) => each !== undefined);
  if (given.length > 1)
    throw new UsageError("--socket, --host and --node each select a daemon: pass only one of them");
  if (options.socket !== undefined) return undefined;
  if (options.host !== undefined) return atAddress(options.host, env);
  if (options.node !== undefined) return findNode(host, options.node);
  // An empty variable counts as unset.
  const [address = "", name = ""] = [env["SVC_HOST"], env["SVC_NODE"]];
  if (address !== "") return atAddress(address, env);
  const { current = localNode } = name === "" ? readNodes(host) : { current: name };
  return findNode(host, current);
}

/** Whether the daemon uses the files of this host. */
export function readsFilesHere(host: Pick<CliHost, "env" | "home" | "uid">, options: NodeOptions): boolean {
  const node = chooseNode(host, options);
  return node === undefined || node.address.startsWith("unix:");
}

/** @throws SvcError `not_found` */
export function findNode(host: Pick<CliHost, "env" | "home" | "uid">, name: string): NamedNode | undefined {
  if (name === localNode) return undefined;
  const { nodes } = readNodes(host);
  const node = Object.hasOwn(nodes, name) ? nodes[name] : undefined;
  if (node === undefined) throw notFound("node", name);
  return { ...node, name };
}

/** An address without a name; its other properties come from the environment. */
function atAddress(address: string, env: CliHost["env"]): NamedNode {
  const { SVC_TOKEN_FILE, SVC_CREDENTIAL_HELPER, SVC_CA_FILE } = env;
  return {
    name: address,
    address,
    ...(SVC_TOKEN_FILE === undefined ? {} : { token_file: SVC_TOKEN_FILE }),
    ...(SVC_CREDENTIAL_HELPER === undefined ? {} : { credential_helper: SVC_CREDENTIAL_HELPER }),
    ...(SVC_CA_FILE === undefined ? {} : { ca_file: SVC_CA_FILE }),
  };
}
