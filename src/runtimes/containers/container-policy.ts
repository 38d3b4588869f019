/**
 * Decides what containers may access on the host, by their resolved configuration: the runtimes convert it to {@link
 * ContainerClaims}, and options that they do not know count as privileged.
 */
import { readFile, realpath } from "node:fs/promises";
import { isAbsolute, normalize, relative } from "node:path";
import { SvcError } from "../../errors.ts";
import type { EntryType } from "../../run-as/user-helper-types.ts";
import type { User } from "../../run-as/user.ts";
import { formatSubnet, isWithin, parseSubnet, type Subnet } from "../../engine/subnets.ts";
import { isInside } from "../../lib/paths.ts";
import type { Permission } from "../../packages/manifest/permissions.ts";
import { clockFiles } from "./host-clock.ts";
import type { HostRequirement } from "./host-requirements.ts";
import { hasPermission, type RunnableApp } from "../runnable-app.ts";

/** A path of the host that a container mounts. */
export interface Bind {
  /** Absolute and normalized. */
  readonly source: string;
  readonly readOnly: boolean;
}

/** The owner of a file in a container; both fields are empty for the default. */
export interface FileOwner {
  /** Such as `config "nginx"`. */
  readonly file: string;
  readonly uid: string;
  readonly gid: string;
}

/** Number of containers and published host ports, and bytes in the engine's list. */
export interface Usage {
  readonly containers: number;
  readonly ports: number;
  readonly descriptionBytes: number;
}

/** Access and resources that one container requests. */
export interface ContainerClaims {
  /** Subject of messages: `the container`, `service "web"`. */
  readonly subject: string;
  /** The configured user; empty for the image's user. Absent if it is not a container. */
  readonly user?: string;
  readonly requirements: readonly HostRequirement[];
  readonly binds: readonly Bind[];
  /** Published host ports: a number, a range such as `8000-8010`, or empty or `0` for any free port. */
  readonly hostPorts: readonly string[];
  /** Subnets that it sets, as text. Absent if it is not a network. */
  readonly subnets?: readonly string[];
  /** Owners of its configs and secrets. */
  readonly fileOwners?: readonly FileOwner[];
  /** Usage that counts toward its owner's limits. */
  readonly uses?: Usage;
  /** Resources beyond the limits of a user's container; completes a sentence as {@link HostRequirement.what} does. */
  readonly excess?: readonly string[];
}

/** Which host ports containers may publish. */
export interface HostPortRules {
  /** Lower ports are only for root's own apps (ip(7), `ip_unprivileged_port_start`). */
  readonly unprivilegedPortStart: number;
  /**
   * TCP port of `[api] listen`, which no app may publish: the engine's proxy binds ports as root, and clients could
   * send their tokens there. 0 reserves none.
   */
  readonly daemonPort: number;
}

export interface PolicyOptions extends HostPortRules {
  /** The owner of the app's files. */
  readonly user: Pick<User, "uid" | "gid">;
  /**
   * Type of an entry in the app's directory, by relative path. Before a container starts, only the result of
   * `holdMounts` counts; that of the owner's helper reports problems early.
   */
  readonly typeOf: (path: string) => Promise<EntryType | undefined>;
  /** Sockets that control the engine, as spelled in the daemon's configuration. */
  readonly engineSockets: readonly string[];
  /** Range of the subnets of regular users. */
  readonly subnetPool: Subnet;
}

/** Maximum number of containers of one kind in a regular user's app. */
export const usersContainers = 32;

/**
 * Maximum JSON bytes of a regular user's container, project with all its replicas, or image description: the engine's lists contain commands and labels, for every caller.
 */
const usersLength = 128 * 1024;

/** The excess of a description that is too long. @param bytes see {@link descriptionBytes} */
export function tooLong(bytes: number): string[] {
  return bytes <= usersLength ? [] : [`is ${bytes} bytes long, more than ${usersLength}`];
}

/** Default sockets of engines, whatever this engine's socket is. */
export const wellKnownSockets = [
  "/run/docker.sock",
  "/var/run/docker.sock",
  "/run/containerd/containerd.sock",
  "/run/podman/podman.sock",
];

/**
 * Root's own apps get what their manifest's permissions name, because the install acknowledged them. Other apps
 * access nothing of the host but their own directory, and run only as their owner: the owner could run what another
 * uid leaves there, such as a set-user-ID program of root's, and uids in containers are those of the host.
 * @throws SvcError `permission_denied` `denied` with everything that is requested and not allowed
 */
export async function requireAllowed(
  app: RunnableApp,
  claims: readonly ContainerClaims[],
  options: PolicyOptions,
): Promise<void> {
  const missing: { permission: Permission; sentence: string }[] = [];
  for (const { subject, binds, requirements } of claims) {
    for (const { permission, what } of [...requirements, ...(await bindRequirements(app, binds, options))]) {
      if (hasPermission(app, permission)) continue;
      missing.push({ permission, sentence: `${subject} ${what}` });
    }
  }
  if (missing.length > 0) throw missingPermissions(app, missing);
  if (app.ownerUid !== 0) for (const container of claims) requireOwnersOwn(container, options);
  for (const container of claims) requireUnreserved(container, options);
}

/** Lists all problems at once, with the remedy. */
function missingPermissions(
  app: RunnableApp,
  missing: readonly { permission: Permission; sentence: string }[],
): SvcError<"denied"> {
  const sentences = missing.map(({ sentence }) => sentence).join("; ");
  if (app.ownerUid !== 0) {
    return denied(
      `${sentences}, which only root's own apps may do; leave it out, or have root install the app`,
    );
  }
  const names = [...new Set(missing.map(({ permission }) => `"${permission}"`))].join(", ");
  return denied(`${sentences}; add ${names} to the manifest's permissions`);
}

function requireUnreserved({ subject, hostPorts }: ContainerClaims, { daemonPort }: PolicyOptions): void {
  const reserved = hostPorts.find((text) => includesPort(text, daemonPort));
  if (reserved !== undefined) {
    throw denied(
      `${subject} publishes port ${reserved}; port ${daemonPort} is reserved for svc ([api] listen); choose another one`,
    );
  }
}

function requireOwnersOwn(container: ContainerClaims, options: PolicyOptions): void {
  const { subject, user, hostPorts, subnets = [], fileOwners = [], excess = [] } = container;
  const { unprivilegedPortStart, user: owner, subnetPool } = options;
  const port = hostPorts.find((text) => !isForUsers(text, unprivilegedPortStart));
  if (port !== undefined) {
    throw denied(
      `${subject} publishes port ${port}; ports below ${unprivilegedPortStart} are for root's own apps; choose one from ${unprivilegedPortStart} to ${maxPort}`,
    );
  }
  const subnet = subnets.find((text) => !isWithin(parseSubnet(text), subnetPool));
  if (subnet !== undefined) {
    throw denied(
      `${subject} sets the subnet "${subnet}"; those of regular users are in ${formatSubnet(subnetPool)} ([docker] subnet_pool); choose one there, leave "ipam" out, or have root install the app`,
    );
  }
  const { uid, gid } = owner;
  const given = fileOwners.find(
    (file) => !["", `${uid}`].includes(file.uid) || !["", `${gid}`].includes(file.gid),
  );
  if (given !== undefined) {
    throw denied(
      `${subject} gives ${given.file} to the user "${given.uid}:${given.gid}", but it must belong to the app's owner, "${ownerSpec(owner)}"; leave "uid" and "gid" out`,
    );
  }
  requireNoExcess(subject, excess);
  // Without a group, the user would get the image's group or root's; the image decides what a user name means.
  if (user !== undefined && user !== ownerSpec(owner)) {
    const asWhom = user === "" ? "as the user of its image" : `as "${user}"`;
    throw denied(
      `${subject} runs ${asWhom}, but it must run as its owner; leave "user" out, or set it to "${ownerSpec(owner)}"`,
    );
  }
}

/**
 * Rejects a regular user's claims beyond the limits, before other work that takes long for large claims.
 * @throws SvcError `denied`
 */
export function requireWithinLimits(
  app: Pick<RunnableApp, "ownerUid">,
  claims: readonly ContainerClaims[],
): void {
  if (app.ownerUid === 0) return;
  for (const { subject, excess = [] } of claims) requireNoExcess(subject, excess);
}

/** @param excess as in {@link ContainerClaims} @throws SvcError `denied` */
export function requireNoExcess(subject: string, [most]: readonly string[]): void {
  if (most === undefined) return;
  throw denied(
    `${subject} ${most}, which only root's own apps may do; lower it or leave it out, or have root install the app`,
  );
}

const maxPort = 65_535;

/** Whether users may bind both ends of a port or range; for an empty text and `0`, the engine picks any free port. */
function isForUsers(text: string, unprivilegedPortStart: number): boolean {
  if (text === "" || text === "0") return true;
  const { first, last } = rangeOf(text);
  // Port 0 at an end of a range would include low ports.
  const start = Math.max(1, unprivilegedPortStart);
  return first >= start && last >= first && last <= maxPort;
}

function includesPort(text: string, port: number): boolean {
  const { first, last } = rangeOf(text);
  return port !== 0 && first <= port && port <= last;
}

/** NaN at both ends for a text that is neither a port nor a range. */
function rangeOf(text: string): { first: number; last: number } {
  const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  return { first: Number(first), last: Number(last) };
}

/** A user in the engine's form: `uid:gid`. */
export function ownerSpec({ uid, gid }: { uid: number; gid: number }): string {
  return `${uid}:${gid}`;
}

/** Host access of binds: none for plain paths in the app's own directory. */
async function bindRequirements(
  app: RunnableApp,
  binds: readonly Bind[],
  { typeOf, engineSockets }: PolicyOptions,
): Promise<HostRequirement[]> {
  if (binds.length === 0) return [];
  // Root controls the path down to the app's directory, so only the store's location may contain symlinks.
  const roots = [app.directory, await realpath(app.directory).catch(() => app.directory)];
  const sockets = new Set([...wellKnownSockets, ...engineSockets]);
  for (const socket of [...sockets]) sockets.add(await realpath(socket).catch(() => socket));
  const requirements: HostRequirement[] = [];
  for (const { source, readOnly } of binds) {
    if (readOnly && clockFiles.has(source)) continue;
    const root = roots.find((directory) => isInside(directory, source));
    if (root !== undefined) {
      await requirePlain(typeOf, relative(root, source) || ".");
      continue;
    }
    const real = app.ownerUid === 0 ? await realpath(source).catch(() => source) : source;
    const holdsSocket = [...sockets].some((socket) => [source, real].some((path) => isInside(path, socket)));
    if (holdsSocket) {
      requirements.push({
        permission: "engine_socket",
        what: `mounts ${source}, which gives it control of the container engine`,
      });
    } else {
      const why = clockFiles.has(source) ? "not read-only" : "which is outside the app's directory";
      requirements.push({ permission: "host_mounts", what: `mounts ${source}, ${why}` });
    }
  }
  return requirements;
}

/** The engine follows symlinks as root, so the path must contain none of the owner's. */
async function requirePlain(typeOf: PolicyOptions["typeOf"], path: string): Promise<void> {
  const type = await typeOf(path);
  if (type === undefined)
    throw denied(`the mount source ${path} does not exist; create it, or mount another path`);
  if (type !== "directory" && type !== "file") {
    throw denied(
      `the mount source ${path} is a special file or a symlink, or a parent of it is a symlink; use a plain directory or file`,
    );
  }
}

/** A bind of the host. A source that is not absolute counts as the whole host, because it cannot be checked. */
export function bindOf(source: string, readOnly: boolean): Bind {
  return { source: isAbsolute(source) ? stripSlash(normalize(source)) : "/", readOnly };
}

function stripSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}

function denied(message: string): SvcError<"denied"> {
  return new SvcError("denied", message);
}

/** Lower ports require root on this host (ip(7)). */
export async function readUnprivilegedPortStart(): Promise<number> {
  const text = await readFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", "latin1").catch(() => "");
  return /^\d+$/.test(text.trim()) ? Number(text) : 1024;
}
