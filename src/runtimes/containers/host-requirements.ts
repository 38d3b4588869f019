/** Host access that options of containers, volumes and logs request. Options not named here request none. */
import { devicePermission, type Permission } from "../../packages/manifest/permissions.ts";

/** Access beyond that of every container, and the manifest permission that grants it to root's own apps. */
export interface HostRequirement {
  readonly permission: Permission;
  /** Completes "the container …" or `service "web" …`. */
  readonly what: string;
}

const namespaces = {
  network: { permission: "host_network", name: "network" },
  pid: { permission: "host_pid", name: "process ids" },
  ipc: { permission: "host_ipc", name: "inter-process communication" },
  uts: { permission: "privileged", name: "host name" },
  userns: { permission: "privileged", name: "user namespace" },
  cgroup: { permission: "privileged", name: "control groups" },
} as const satisfies Record<string, { permission: Permission; name: string }>;

/** Host access of a namespace mode; `own` modes stay within the app. */
export function namespaceRequirements(
  kind: keyof typeof namespaces,
  mode: string,
  own: ReadonlySet<string>,
): HostRequirement[] {
  if (mode === "" || own.has(mode)) return [];
  const { permission, name } = namespaces[kind];
  return [
    {
      permission,
      what: mode === "host" ? `shares the host's ${name}` : `shares the ${name} of "${mode}"`,
    },
  ];
}

/** Security options other than those that only restrict. */
export function securityOptRequirements(options: readonly string[]): HostRequirement[] {
  const harmless = /^no-new-privileges([:=]true)?$/;
  return options
    .filter((option) => !harmless.test(option))
    .map((option) => ({
      // Without SELinux labels, the other protection remains: a container reaches only what it mounts.
      permission: /^label[:=]disable$/.test(option) ? "host_mounts" : "privileged",
      what: `sets the security option "${option}"`,
    }));
}

export function listRequirements(
  values: readonly string[],
  permission: Permission,
  verb: string,
): HostRequirement[] {
  return values.map((value) => ({ permission, what: `${verb} "${value}"` }));
}

/** The engine's default capabilities (oci/caps/defaults.go of github.com/moby/moby v28). */
const defaultCapabilities = new Set([
  ...["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"],
  ...["NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"],
]);

/** Capabilities that an ordinary container does not have. Those of the default set only undo `cap_drop`. */
export function capabilityRequirements(names: readonly string[]): HostRequirement[] {
  const added = names.filter((name) => !defaultCapabilities.has(name.toUpperCase().replace(/^CAP_/, "")));
  return listRequirements(added, "capabilities", "adds the capability");
}

/** Devices of the host, by path. */
export function deviceRequirements(paths: readonly string[]): HostRequirement[] {
  return paths.map((path) => ({ permission: devicePermission(path), what: `uses the device "${path}"` }));
}

/** Supplementary groups: the image decides what a group name means, so the access is unknown. */
export function groupRequirements(groups: readonly string[]): HostRequirement[] {
  return groups.map((group) =>
    /^\d+$/.test(group)
      ? { permission: "groups", what: `joins the group ${group}` }
      : {
          permission: "privileged",
          what: `joins the group "${group}"; with the permission "groups" it may join a group by number`,
        },
  );
}

/** Mount propagation between container and host. */
export function propagationRequirements(propagation: string): HostRequirement[] {
  if (["", "private", "rprivate"].includes(propagation)) return [];
  return [{ permission: "host_mounts", what: `mounts with the propagation "${propagation}"` }];
}

/** Drivers and options of volumes; options of the local driver can mount any directory or device of the host. */
export function volumeDriverRequirements(
  driver: string,
  options: Readonly<Record<string, unknown>> | undefined,
): HostRequirement[] {
  const requirements: HostRequirement[] = [];
  if (!["", "local"].includes(driver)) {
    requirements.push({ permission: "host_mounts", what: `keeps a volume with the driver "${driver}"` });
  }
  const names = Object.keys(options ?? {});
  if (names.length > 0) {
    requirements.push({
      permission: "host_mounts",
      what: `gives a volume driver the options ${names.join(", ")}`,
    });
  }
  return requirements;
}

/** Log drivers that send logs to a service of the host or the network. */
export function logDriverRequirements(driver: string): HostRequirement[] {
  if (["", "json-file", "local", "none"].includes(driver)) return [];
  return [{ permission: "privileged", what: `sends its log to the driver "${driver}"` }];
}
