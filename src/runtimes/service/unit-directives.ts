/**
 * What a package's unit may say (threat 67). Whoever writes a unit is served by root: a directive that is not here could
 * start other units, run commands as root, or open what is closed to the app's owner. So the list is closed, and of each
 * directive the values are.
 */
import type { UnitEntry } from "./unit-file.ts";

/** A switch that closes something; opening is not for the unit to say. */
const closing = /^(yes|true|on|1)$/i;
const either = /^(yes|true|on|1|no|false|off|0)$/i;
/** What systemd reads as times: at most ten minutes of waiting. */
const time = /^(?:[1-9]?\d|[1-5]\d\d|600)s?$/;
/**
 * Run as the unit's user with all that is closed to it: without the prefixes `+` and `!`, which lift that. systemd looks for
 * them in the first word without its quotes and escapes, and again behind each `;` that stands by itself, wherever it is: what
 * ends a line to JavaScript (U+2028) ends none to systemd.
 */
const command = /^[-@:]*[A-Za-z0-9._/](?!.*\s;(?:\s|$))/s;
/** Specifiers (`%h`) are expanded by root's systemd; `%%` is a per cent sign. */
const plain = /^(?:[^%]|%%)*$/;

interface Directive {
  readonly accepts: RegExp;
  /** What it may say, where it may say something. */
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

/** Where to say it instead. */
const elsewhere: Readonly<Record<string, string>> = {
  "Service.Restart": "restart in svc.yaml says that",
  "Service.RestartSec": "restart in svc.yaml says that",
  "Service.TimeoutStopSec": "stop in svc.yaml says that",
  "Service.KillSignal": "stop in svc.yaml says that",
  "Service.MemoryMax": "limits in svc.yaml says that",
  "Service.CPUQuota": "limits in svc.yaml says that",
  "Service.LimitNOFILE": "limits in svc.yaml says that",
  "Service.User": "it runs as its owner",
  "Service.WorkingDirectory": "service.working_dir in svc.yaml says that",
  "Service.EnvironmentFile": "service.env and settings in svc.yaml say that",
};

/** Why an entry is not for everybody's units; `undefined`: it is. */
export function whyRefused({ section, key, value }: UnitEntry): string | undefined {
  const name = `${section}.${key}`;
  const directive = userDirectives.get(name);
  if (directive === undefined) return elsewhere[name] ?? "it is not one of those that every unit may have";
  if (!plain.test(value)) return "a specifier (%) means nothing here; write %% for a per cent sign";
  return directive.accepts.test(value) ? undefined : `it must be ${directive.expected}`;
}
