/** Permissions for access to the host, from one kind of device to everything. */
import { posix } from "node:path";
import type { ManifestDocument } from "../../../gen/manifest-document.ts";

export type Permission = NonNullable<ManifestDocument["permissions"]>[number];

const sentences: Readonly<Record<Permission, string>> = {
  privileged: "The app runs privileged: it can do everything that root can.",
  host_network: "The app uses the host's network directly.",
  host_pid: "The app sees and can signal the host's processes.",
  host_ipc: "The app shares the host's inter-process communication.",
  devices: "The app uses devices of the host.",
  gpu: "The app uses the GPUs of the host.",
  serial: "The app uses serial ports of the host, such as radio sticks.",
  media: "The app uses the sound and video devices of the host.",
  tun: "The app creates network tunnels.",
  groups: "The app joins groups of the host by their IDs.",
  networks: "The app joins networks that other containers also use.",
  capabilities: "The app has capabilities beyond those of an ordinary container.",
  host_mounts: "The app reads or writes directories of the host.",
  engine_socket: "The app controls the container engine, and so the host.",
};

/** Permissions that include another one. */
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

/** Describes the access to the host, one sentence per permission. */
export function describePermissions(permissions: readonly Permission[]): string[] {
  return permissions.map((permission) => sentences[permission]);
}

/** Whether the granted permissions include this one. */
export function isGranted(granted: readonly Permission[], permission: Permission): boolean {
  const more = wider[permission];
  return granted.includes(permission) || (more !== undefined && granted.includes(more));
}

/** The narrowest permission for a device of the host. */
export function devicePermission(path: string): Permission {
  const plain = posix.normalize(path);
  return deviceKinds.find(([, pattern]) => pattern.test(plain))?.[0] ?? "devices";
}
