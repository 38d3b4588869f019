/**
 * Directives that a package's unit may use. Units are processed by root's systemd: an unlisted directive could start
 * other units, run commands as root, or lift restrictions of the app's owner. So the list is closed, and so are the
 * values of each directive.
 */
import type { UnitEntry } from "./unit-file.ts";

/** A switch that adds a restriction; a unit may not remove one. */
const closing = /^(yes|true|on|1)$/i;
const either = /^(yes|true|on|1|no|false|off|0)$/i;
/** A time in systemd's form, at most ten minutes. */
const time = /^(?:[1-9]?\d|[1-5]\d\d|600)s?$/;
/**
 * Runs with the unit's user and restrictions: the prefixes `+` and `!`, which lift them, are not allowed. systemd
 * looks for them in the first word without its quotes and escapes, and again after each separate `;`, wherever it is:
 * a line separator of JavaScript (U+2028) is not one for systemd.
 */
const command = /^[-@:]*[A-Za-z0-9._/](?!.*\s;(?:\s|$))/s;
/** Root's systemd would expand specifiers (`%h`); `%%` is a per cent sign. */
const plain = /^(?:[^%]|%%)*$/;

interface Directive {
  readonly accepts: RegExp;
  /** Describes the allowed values. */
  readonly expected: string;
}

const words = (...all: string[]): Directive => ({
  accepts: new RegExp(`^(?:${all.join("|")})$`),
  expected: all.join(" or "),
});
const closes: Directive = { accepts: closing, expected: "yes" };
const runs: Directive = {
  accepts: command,
  expected: "one command without quotes around it and without the prefixes +, ! and |",
};
const text: Directive = { accepts: /^/, expected: "text" };
const seconds: Directive = { accepts: time, expected: "0 to 600 seconds" };

/** By section and key. */
export const userDirectives: ReadonlyMap<string, Directive> = new Map<string, Directive>([
  ["Unit.Description", text],
  ["Unit.Documentation", text],
  ["Service.Type", words("simple", "exec", "notify", "oneshot")],
  ["Service.RemainAfterExit", { accepts: either, expected: "yes or no" }],
  ["Service.NotifyAccess", words("none", "main", "exec", "all")],
  ["Service.TimeoutStartSec", seconds],
  ["Service.WatchdogSec", seconds],
  ["Service.SuccessExitStatus", { accepts: /^[A-Z0-9 ]+$/, expected: "exit codes and signals" }],
  ["Service.Environment", text],
  ["Service.KillMode", words("control-group", "mixed")],
  ["Service.UMask", { accepts: /^0?[0-7]{3}$/, expected: "an octal mode" }],
  ["Service.Nice", { accepts: /^1?\d$/, expected: "0 to 19" }],
  ["Service.OOMScoreAdjust", { accepts: /^(?:\d{1,3}|1000)$/, expected: "0 to 1000" }],
  ["Service.TasksMax", { accepts: /^\d{1,6}$/, expected: "a number" }],
  ["Service.IgnoreSIGPIPE", { accepts: either, expected: "yes or no" }],
  ["Service.ProtectHome", words("yes", "read-only", "tmpfs")],
  ["Service.ProtectProc", words("noaccess", "invisible", "ptraceable")],
  ["Service.ProcSubset", words("pid")],
  ["Service.SystemCallArchitectures", words("native")],
  [
    "Service.RestrictAddressFamilies",
    { accepts: /^(?:none|AF_[A-Z0-9]+(?: AF_[A-Z0-9]+)*)$/, expected: "AF_ names" },
  ],
  ...["ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"].map(
    (key) => [`Service.${key}`, runs] as const,
  ),
  ...[
    ...["NoNewPrivileges", "PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateIPC", "ProtectClock"],
    ...["ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"],
    ...["ProtectKernelTunables", "MemoryDenyWriteExecute", "LockPersonality", "RestrictNamespaces"],
    ...["RestrictRealtime", "RestrictSUIDSGID", "CPUSchedulingResetOnFork"],
  ].map((key) => [`Service.${key}`, closes] as const),
]);

/** Where to configure it instead. */
const elsewhere: Readonly<Record<string, string>> = {
  "Service.Restart": "use restart in svc.yaml",
  "Service.RestartSec": "use restart in svc.yaml",
  "Service.TimeoutStopSec": "use stop in svc.yaml",
  "Service.KillSignal": "use stop in svc.yaml",
  "Service.MemoryMax": "use limits in svc.yaml",
  "Service.CPUQuota": "use limits in svc.yaml",
  "Service.LimitNOFILE": "use limits in svc.yaml",
  "Service.User": "the unit runs as the app's owner",
  "Service.WorkingDirectory": "use service.working_dir in svc.yaml",
  "Service.EnvironmentFile": "use service.env and settings in svc.yaml",
};

/** Why regular users' units may not contain an entry; `undefined` if they may. */
export function rejectionOf({ section, key, value }: UnitEntry): string | undefined {
  const name = `${section}.${key}`;
  const directive = userDirectives.get(name);
  if (directive === undefined) return elsewhere[name] ?? "regular users' units may not use it";
  if (!plain.test(value)) return "specifiers (%) are not supported; write %% for a per cent sign";
  return directive.accepts.test(value) ? undefined : `the value must be ${directive.expected}`;
}
