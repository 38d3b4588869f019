/**
 * The first version of systemd that supports `DelegateSubgroup=`; older ones warn about it whenever they read it
 * (systemd.resource-control(5)).
 */
const subgroupSince = 254;
const subgroup = /^DelegateSubgroup=.*\n/m;
const insteadOfSubgroup = /(?:^#.*\n)*^ExecStopPost=.*\n/m;

/** Adapts a shipped unit, which has settings for older and newer versions, to a version of systemd. */
export function unitText(shipped: string, systemdVersion: number): string {
  return shipped.replace(systemdVersion >= subgroupSince ? insteadOfSubgroup : subgroup, "");
}
