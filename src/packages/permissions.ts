/** What packages may ask of the host beyond the usual, from a single kind of device to everything. */
import { posix } from "node:path";
import type { ManifestDocument } from "../../gen/manifest-document.ts";

export type Permission = NonNullable<ManifestDocument["permissions"]>[number];

const sentences: Readonly<Record<Permission, string>> = {
  privileged: "It runs privileged: it can do everything that root can.",
  host_network: "It uses the host's network directly.",
  host_pid: "It sees and can signal the host's processes.",
  host_ipc: "It shares the host's inter-process communication.",
  devices: "It uses devices of the host.",
  gpu: "It uses the graphics processors of the host.",
  serial: "It uses serial ports of the host, such as radio sticks.",
  media: "It uses the sound and video devices of the host.",
  tun: "It makes network tunnels of its own.",
  groups: "It joins groups of the host, by their numbers.",
  networks: "It joins networks that containers of others are on, too.",
  capabilities: "It has capabilities beyond those of an ordinary container.",
  host_mounts: "It reads or writes directories of the host.",
  engine_socket: "It controls the container engine, and so the host.",
};

/** Those that another one is a part of. */
const wider: Readonly<Partial<Record<Permission, Permission>>> = {
  ...{ gpu: "devices", serial: "devices", media: "devices", tun: "devices" },
  ...{ groups: "privileged", networks: "host_network" },
};

const deviceKinds: readonly (readonly [Permission, RegExp])[] = [
  ["gpu", /^\/dev\/(dri(\/.*)?|kfd|nvidia[\w-]*)$/],
  ["serial", /^\/dev\/(serial(\/.*)?|tty(USB|ACM|AMA)\d+)$/],
  ["media", /^\/dev\/(snd(\/.*)?|dvb(\/.*)?|video\d+)$/],
  ["tun", /^\/dev\/net\/tun$/],
];

/** What the package asks of the host beyond the usual, one sentence each. */
export function describePermissions(permissions: readonly Permission[]): string[] {
  return permissions.map((permission) => sentences[permission]);
}

/** Whether these permissions give what this one does. */
export function isGranted(granted: readonly Permission[], permission: Permission): boolean {
  const more = wider[permission];
  return granted.includes(permission) || (more !== undefined && granted.includes(more));
}

/** The narrowest permission for a device of the host. */
export function devicePermission(path: string): Permission {
  const plain = posix.normalize(path);
  return deviceKinds.find(([, pattern]) => pattern.test(plain))?.[0] ?? "devices";
}
