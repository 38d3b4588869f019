/** Since then systemd knows of a `DelegateSubgroup=`; older ones warn of it whenever they read it (systemd.resource-control(5)). */
const subgroupSince = 254;
const subgroup = /^DelegateSubgroup=.*\n/m;
const insteadOfSubgroup = /(?:^#.*\n)*^ExecStopPost=.*\n/m;

/** A unit that is shipped, which has what is for older and for newer ones, as a systemd of that version takes it. */
export function unitText(shipped: string, systemdVersion: number): string {
  return shipped.replace(systemdVersion >= subgroupSince ? insteadOfSubgroup : subgroup, "");
}
