/**
 * What containers may have of the host (decisions 20), decided on their resolved configuration: the runtimes read that
 * into {@link ContainerClaims} and everything a reader does not know counts as asked for.
 */
import { readFile, realpath } from "node:fs/promises";
import { isAbsolute, normalize, relative } from "node:path";
import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import { isInside } from "../lib/is-inside.ts";
import { devicePermission, isGranted, type Permission } from "../packages/permissions.ts";
import { entryType } from "./entry-type.ts";
import { hostClock } from "./host-clock.ts";
import type { RunnableApp } from "./runtime.ts";

/** Something beyond what every container has, and the permission of the manifest that gives it to root's own apps. */
export interface HostAsk {
  readonly permission: Permission;
  /** Continues "the container …" or `service "web" …`. */
  readonly what: string;
}

/** A path of the host that a container sees. */
export interface Bind {
  /** Absolute and normalised. */
  readonly source: string;
  readonly readOnly: boolean;
}

/** What one container asks for. */
export interface ContainerClaims {
  /** How sentences name it: `the container`, `service "web"`. */
  readonly subject: string;
  /** As the configuration says; empty for what the image says. Absent for what is no container. */
  readonly user?: string;
  readonly asks: readonly HostAsk[];
  readonly binds: readonly Bind[];
  /** Ports of the host, 0 for any free one. */
  readonly hostPorts: readonly number[];
  /** What takes more of the host than a user's container may; continues a sentence as {@link HostAsk.what} does. */
  readonly excess?: readonly string[];
}

export interface PolicyOptions {
  /** The hands of the uid that the app's files belong to. */
  readonly identity: Pick<Identity, "stat" | "user">;
  /** Sockets that control the engine, as the daemon spells them. */
  readonly engineSockets: readonly string[];
  /** Ports below it are root's (ip(7), `ip_unprivileged_port_start`). */
  readonly unprivilegedPortStart: number;
}

/** So many containers of one kind a regular user's app has at most. */
export const usersContainers = 32;

/**
 * So long a regular user's container is as JSON, a project with all of its copies, and what an image says of itself: the engine's
 * lists of containers and images have their commands and labels, whoever asks.
 */
const usersLength = 128 * 1024;

/** What is said of more than that. @param length in characters of JSON */
export function tooLong(length: number): string[] {
  return length <= usersLength ? [] : [`is ${length} characters long, more than ${usersLength}`];
}

/** Where engines listen by default, whatever this one's socket is. */
export const wellKnownSockets = [
  "/run/docker.sock",
  "/var/run/docker.sock",
  "/run/containerd/containerd.sock",
  "/run/podman/podman.sock",
];

/**
 * Root's own apps get what their manifest's permissions name, since the install has acknowledged those. Everybody else's
 * get nothing of the host but their own directory, and run as themselves only: what another uid leaves there (a
 * set-user-ID program of root's, say) would be the owner's to run, and a uid of the container is the host's.
 * @throws SvcError `permission_denied` `denied` with all that is asked for and may not be had
 */
export async function requireAllowed(
  app: RunnableApp,
  claims: readonly ContainerClaims[],
  options: PolicyOptions,
): Promise<void> {
  const missing: { permission: Permission; sentence: string }[] = [];
  for (const { subject, binds, asks } of claims) {
    for (const { permission, what } of [...asks, ...(await bindAsks(app, binds, options))]) {
      if (app.ownerUid === 0 && isGranted(app.manifest.permissions, permission)) continue;
      missing.push({ permission, sentence: `${subject} ${what}` });
    }
  }
  if (missing.length > 0) throw missingPermissions(app, missing);
  if (app.ownerUid !== 0) for (const container of claims) requireOwnersOwn(container, options);
}

/** All at once, with who may give it: nobody likes to be told one after the other. */
function missingPermissions(
  app: RunnableApp,
  missing: readonly { permission: Permission; sentence: string }[],
): SvcError<"denied"> {
  const sentences = missing.map(({ sentence }) => sentence).join("; ");
  if (app.ownerUid !== 0) {
    return denied(`${sentences}, which only root's own apps may: leave that out, or have root install it`);
  }
  const names = [...new Set(missing.map(({ permission }) => `"${permission}"`))].join(", ");
  return denied(`${sentences}: add ${names} to the manifest's permissions`);
}

function requireOwnersOwn(container: ContainerClaims, options: PolicyOptions): void {
  const { subject, user, hostPorts, excess = [] } = container;
  const { unprivilegedPortStart, identity } = options;
  const port = hostPorts.find((number) => number > 0 && number < unprivilegedPortStart);
  if (port !== undefined) {
    throw denied(
      `${subject} publishes port ${port}; ports below ${unprivilegedPortStart} are for root's own apps: choose a higher one`,
    );
  }
  const [most] = excess;
  if (most !== undefined) {
    throw denied(
      `${subject} ${most}, which only root's own apps may: have it want less, or have root install it`,
    );
  }
  // Without a group it would be the image's, or root's; a name is whom the image says.
  if (user !== undefined && user !== ownerSpec(identity.user)) {
    const asWhom = user === "" ? "as whom its image says" : `as "${user}"`;
    throw denied(
      `${subject} runs ${asWhom}; it may only as its owner, "${ownerSpec(identity.user)}": leave "user" out`,
    );
  }
}

/** A user as the engine takes it: `uid:gid`. */
export function ownerSpec({ uid, gid }: { uid: number; gid: number }): string {
  return `${uid}:${gid}`;
}

/** What binds ask of the host: nothing where they lie in the app's own directory without a symlink on the way. */
async function bindAsks(
  app: RunnableApp,
  binds: readonly Bind[],
  { identity, engineSockets }: PolicyOptions,
): Promise<HostAsk[]> {
  if (binds.length === 0) return [];
  // The path itself is root's down to the app's directory: only the store's own place may lead through links.
  const roots = [app.directory, await realpath(app.directory).catch(() => app.directory)];
  const sockets = new Set([...wellKnownSockets, ...engineSockets]);
  for (const socket of [...sockets]) sockets.add(await realpath(socket).catch(() => socket));
  const asks: HostAsk[] = [];
  for (const { source, readOnly } of binds) {
    if (readOnly && hostClock.has(source)) continue;
    const root = roots.find((directory) => isInside(directory, source));
    if (root !== undefined) {
      await requirePlain(identity, root, source);
      continue;
    }
    const real = app.ownerUid === 0 ? await realpath(source).catch(() => source) : source;
    const holdsSocket = [...sockets].some((socket) => [source, real].some((path) => isInside(path, socket)));
    if (holdsSocket) {
      asks.push({
        permission: "engine_socket",
        what: `mounts ${source}, which gives it the container engine`,
      });
    } else {
      const why = hostClock.has(source) ? "not read-only" : "which is outside the app's directory";
      asks.push({ permission: "host_mounts", what: `mounts ${source}, ${why}` });
    }
  }
  return asks;
}

/** The engine follows links as root: there must be none that the owner made. */
async function requirePlain(identity: Pick<Identity, "stat">, root: string, source: string): Promise<void> {
  const path = relative(root, source) || ".";
  const type = await entryType(identity, root, path);
  if (type === undefined)
    throw denied(`${path} is to be mounted and is not there: make it, or mount another`);
  if (type !== "directory" && type !== "file") {
    throw denied(
      `${path} is to be mounted and is, or lies behind, a link or a special file: put a plain directory or file in its place`,
    );
  }
}

/** A bind of the host. A source that is not absolute cannot be judged, so it counts as all of the host. */
export function bindOf(source: string, readOnly: boolean): Bind {
  return { source: isAbsolute(source) ? stripSlash(normalize(source)) : "/", readOnly };
}

function stripSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}

const namespaces = {
  network: { permission: "host_network", name: "network" },
  pid: { permission: "host_pid", name: "process ids" },
  ipc: { permission: "host_ipc", name: "inter-process communication" },
  uts: { permission: "privileged", name: "host name" },
  userns: { permission: "privileged", name: "user namespace" },
  cgroup: { permission: "privileged", name: "control groups" },
} as const satisfies Record<string, { permission: Permission; name: string }>;

/** What a namespace mode asks for; `own` are modes that stay within the app. */
export function namespaceAsks(
  kind: keyof typeof namespaces,
  mode: string,
  own: ReadonlySet<string>,
): HostAsk[] {
  if (mode === "" || own.has(mode)) return [];
  const { permission, name } = namespaces[kind];
  return [
    {
      permission,
      what: mode === "host" ? `shares the host's ${name}` : `shares the ${name} of "${mode}"`,
    },
  ];
}

/** Security options other than those that take something away. */
export function securityOptAsks(options: readonly string[]): HostAsk[] {
  const harmless = /^no-new-privileges([:=]true)?$/;
  return options
    .filter((option) => !harmless.test(option))
    .map((option) => ({ permission: "privileged", what: `sets the security option "${option}"` }));
}

export function listAsks(values: readonly string[], permission: Permission, verb: string): HostAsk[] {
  return values.map((value) => ({ permission, what: `${verb} "${value}"` }));
}

/** Devices of the host, by their paths there. */
export function deviceAsks(paths: readonly string[]): HostAsk[] {
  return paths.map((path) => ({ permission: devicePermission(path), what: `uses the device "${path}"` }));
}

/** Further groups: a name is what the image makes of it, so nobody knows what it opens. */
export function groupAsks(groups: readonly string[]): HostAsk[] {
  return groups.map((group) =>
    /^\d+$/.test(group)
      ? { permission: "groups", what: `joins the group ${group}` }
      : {
          permission: "privileged",
          what: `joins the group "${group}", of which a number would do with "groups"`,
        },
  );
}

/** Mount propagation that carries mounts between container and host. */
export function propagationAsks(propagation: string): HostAsk[] {
  if (["", "private", "rprivate"].includes(propagation)) return [];
  return [{ permission: "host_mounts", what: `mounts with the propagation "${propagation}"` }];
}

/** Where a volume is kept; options of the local driver can make it any directory or device of the host. */
export function volumeDriverAsks(
  driver: string,
  options: Readonly<Record<string, unknown>> | undefined,
): HostAsk[] {
  const asks: HostAsk[] = [];
  if (!["", "local"].includes(driver)) {
    asks.push({ permission: "host_mounts", what: `keeps a volume with the driver "${driver}"` });
  }
  const names = Object.keys(options ?? {});
  if (names.length > 0) {
    asks.push({
      permission: "host_mounts",
      what: `gives a volume driver the options ${names.join(", ")}`,
    });
  }
  return asks;
}

/** Logs that would leave the container's own files for a service of the host or the network. */
export function logDriverAsks(driver: string): HostAsk[] {
  if (["", "json-file", "local", "none"].includes(driver)) return [];
  return [{ permission: "privileged", what: `sends its log to the driver "${driver}"` }];
}

function denied(message: string): SvcError<"denied"> {
  return new SvcError("denied", message);
}

/** Ports below it need root on this host (ip(7)). @param procDir where procfs is mounted */
export async function readUnprivilegedPortStart(procDir = "/proc"): Promise<number> {
  const text = await readFile(`${procDir}/sys/net/ipv4/ip_unprivileged_port_start`, "latin1").catch(() => "");
  return /^\d+$/.test(text.trim()) ? Number(text) : 1024;
}
