/**
 * Kernel parameters of containers. The kernel keeps the ones listed here separately for each network or IPC namespace
 * (Documentation/admin-guide/sysctl/net.rst, ipc_namespaces(7)); all others are shared with the host.
 */
import { listRequirements, type HostRequirement } from "./host-requirements.ts";

/** The engine replaces every dot by a slash, so that a name with only these characters cannot leave its directory. */
const namespaced: readonly RegExp[] = [
  /^net\.core\.somaxconn$/,
  /^net\.unix\.max_dgram_qlen$/,
  /^net\.ipv[46]\.conf\.[\w-]+\.\w+$/,
  /^net\.ipv4\.(?:icmp|igmp|ip|ping|tcp|udp)_\w+$/,
  /^net\.ipv6\.(?:bindv6only|auto_flowlabels|ip_nonlocal_bind|icmp\.\w+)$/,
  /^kernel\.(?:shm(?:all|max|mni|_rmid_forced)|msg(?:max|mnb|mni)|sem)$/,
  /^fs\.mqueue\.(?:queues_max|msg_max|msgsize_max|msg_default|msgsize_default)$/,
];

/** Parameters that match above and affect the host. */
const shared: Readonly<Record<string, string>> = {
  "net.ipv4.tcp_congestion_control": "loads a kernel module",
  "net.ipv4.tcp_allowed_congestion_control": "applies to all namespaces",
  "net.ipv4.tcp_early_demux": "applies to all namespaces before Linux 6.0",
  "net.ipv4.udp_early_demux": "applies to all namespaces before Linux 6.0",
  "net.ipv4.ip_early_demux": "applies to all namespaces before Linux 6.0",
  "net.ipv4.tcp_child_ehash_entries": "uses memory of the kernel",
  "net.ipv4.udp_child_hash_entries": "uses memory of the kernel",
};

/**
 * Maximum values for users. No memory limit of a container includes its closed connections (TIME_WAIT), nor, before Linux
 * 5.15, its message queues.
 */
const bounds: Readonly<Record<string, number>> = {
  "kernel.msgmax": 65_536,
  "kernel.msgmnb": 65_536,
  "kernel.msgmni": 32_768,
  // The highest default.
  "net.ipv4.tcp_max_tw_buckets": 262_144,
};

/** Parameters that are shared with the host. */
export function kernelParameterRequirements(names: readonly string[]): HostRequirement[] {
  const others = names.filter(
    (name) => Object.hasOwn(shared, name) || !namespaced.some((pattern) => pattern.test(name)),
  );
  return listRequirements(others, "privileged", "sets the kernel parameter");
}

/** @param parameters values by name */
export function excessOfKernelParameters(parameters: Readonly<Record<string, string>>): string[] {
  return Object.entries(parameters).flatMap(([name, value]) => {
    const most = Object.hasOwn(bounds, name) ? bounds[name] : undefined;
    if (most === undefined || (/^\d+$/.test(value) && Number(value) <= most)) return [];
    return [`sets the kernel parameter "${name}" to ${value}, more than ${most}`];
  });
}
