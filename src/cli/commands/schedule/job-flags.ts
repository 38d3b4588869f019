/** The flags that describe a job, for `svc schedule add` and `edit`. */
import { Option, type Command } from "commander";
import { ScheduleActionMethods, ScheduleCatchUps } from "../../../../gen/svc/v1/values.ts";
import { UsageError } from "../../output/failure.ts";
import { collect, parseCount, parseDuration } from "../../input/option-values.ts";
import type { Schedule, ScheduleRequest } from "../../client/calls.ts";
import { ownerOption, type OwnerOption } from "./owner-option.ts";

export type JobAction = NonNullable<Schedule["action"]>;

export interface JobFlags extends OwnerOption {
  readonly app?: string;
  readonly storage?: readonly string[];
  readonly keep?: number;
  readonly command?: string;
  readonly url?: string;
  readonly method?: string;
  readonly header?: readonly string[];
  readonly body?: string;
  readonly keepChildren?: boolean;
  /** Seconds. */
  readonly timeout?: number;
  readonly utc?: boolean;
  readonly timeZone?: string;
  readonly comment?: string;
  /** Seconds. */
  readonly jitter?: number;
  readonly retries?: number;
  readonly catchUp?: string;
}

export function addJobFlags(command: Command): void {
  command
    .option("--app <id>", "the app, for app_*, backup, backup_verify and shell (for shell, root may omit it)")
    .option("--command <command>", "the command for /bin/sh, for shell")
    .option("--url <url>", "the URL, for http")
    .addOption(
      new Option("--method <method>", "the HTTP method, for http (default: GET)").choices(
        ScheduleActionMethods,
      ),
    )
    .option("--header <header>", "'Name: value', for http (repeatable)", collect)
    .option("--body <text>", "the request body, for http")
    .option("--keep-children", "do not kill background processes when the command exits, for shell")
    .option("--no-keep-children", "kill background processes (default)")
    .option("--storage <name>", "target storage, for backup (repeatable; default: the app's)", collect)
    .option("--keep <count>", "number of archives to keep, for backup", parseCount(1))
    .option("--timeout <time>", "time limit of a run, such as 90s or 10m, at most 1h", parseDuration(1, 3600))
    .option("--utc", "read the trigger in UTC")
    .option("--time-zone <name>", "read the trigger in this time zone, such as Europe/Berlin")
    .option("--comment <text>", "a note for people")
    .option(
      "--jitter <time>",
      "random delay of the start, up to this time, at most 1h",
      parseDuration(0, 3600),
    )
    .option("--retries <count>", "retry a failed run up to N times, at most 10", parseCount(0, 10))
    .addOption(
      new Option("--catch-up [which]", "run once for firings missed while the daemon was down")
        .choices(ScheduleCatchUps)
        .preset("latest"),
    )
    .addOption(ownerOption());
}

type ActionFlag =
  "app" | "command" | "keepChildren" | "url" | "method" | "header" | "body" | "storage" | "keep";

interface ActionFlags {
  readonly needs: readonly ActionFlag[];
  readonly takes: readonly ActionFlag[];
}

const appAction: ActionFlags = { needs: ["app"], takes: [] };
const actionFlags: Readonly<Record<string, ActionFlags>> = {
  node_reboot: { needs: [], takes: [] },
  app_start: appAction,
  app_stop: appAction,
  app_restart: appAction,
  app_update: appAction,
  backup: { needs: ["app"], takes: ["storage", "keep"] },
  backup_verify: { needs: ["app"], takes: ["storage"] },
  shell: { needs: ["command"], takes: ["app", "keepChildren"] },
  http: { needs: ["url"], takes: ["method", "header", "body"] },
};

const allActionFlags = new Set(
  Object.values(actionFlags).flatMap(({ needs, takes }) => [...needs, ...takes]),
);
const commonFlags = ["timeout", "utc", "timeZone", "comment", "jitter", "retries", "catchUp"] as const;

export const actionTypes = Object.keys(actionFlags);

/** @throws UsageError for a flag of another action */
function rejectFlagsOfOtherActions(type: string, flags: JobFlags): void {
  const { needs, takes } = actionFlags[type] ?? { needs: [], takes: [] };
  const known: readonly string[] = [...needs, ...takes];
  for (const flag of allActionFlags) {
    if (flags[flag] !== undefined && !known.includes(flag)) {
      const takers = actionTypes.filter((each) => {
        const accepted = actionFlags[each];
        return accepted?.needs.includes(flag) === true || accepted?.takes.includes(flag) === true;
      });
      const name = flag === "keepChildren" ? "keep-children" : flag;
      throw new UsageError(`--${name} is for ${takers.join(", ")}, not for ${type}`);
    }
  }
}

/** Example values of required flags. */
const flagExamples: Readonly<Record<string, string>> = {
  app: "ID",
  command: "'echo hi'",
  url: "https://example.org/ping",
};

/** @throws UsageError if a flag that the action requires is missing */
export function requireFlags(type: string, flags: JobFlags): void {
  const missing = (actionFlags[type]?.needs ?? []).filter((flag) => (flags[flag] ?? "") === "");
  if (missing.length > 0)
    throw new UsageError(
      `${type} needs ${missing.map((flag) => `--${flag} ${flagExamples[flag] ?? ""}`.trim()).join(", ")}`,
    );
}

/** An action with nothing but its type. */
export function bareAction(type: string): JobAction {
  return { type, app: "", storages: [], command: "", headers: {}, body: "" };
}

/** Whether any flag other than `--owner` is set. */
export function hasFlags({ owner: _owner, ...flags }: JobFlags): boolean {
  const others: readonly (keyof typeof flags)[] = [...allActionFlags, ...commonFlags];
  return others.some((flag) => flags[flag] !== undefined);
}

/** The job, changed by the flags that are set. @throws UsageError */
export function withFlags(job: ScheduleRequest, action: JobAction, flags: JobFlags): ScheduleRequest {
  rejectFlagsOfOtherActions(action.type, flags);
  const { app, storage, keep, command, keepChildren, url, method, header, body, owner } = flags;
  // The job's own `keep` replaces the action's.
  const { keep: actionKeep, ...others } = action;
  const { timeout, utc, timeZone, comment, jitter, retries, catchUp } = flags;
  if (utc === true && (timeZone ?? "") !== "") throw new UsageError("pass either --utc or --time-zone");
  return {
    ...job,
    action: {
      ...others,
      ...(keep === undefined && actionKeep !== undefined && { keep: actionKeep }),
      ...(app !== undefined && { app }),
      ...(storage !== undefined && { storages: storage }),
      ...(command !== undefined && { command }),
      ...(keepChildren !== undefined && { keep_children: keepChildren }),
      ...(url !== undefined && { url }),
      ...(method !== undefined && { method }),
      ...(header !== undefined && { headers: withHeaders(action.headers, header) }),
      ...(body !== undefined && { body }),
    },
    ...(keep !== undefined && { keep }),
    ...(timeout !== undefined && { timeout }),
    // Either UTC or a time zone: setting one clears the other.
    ...(utc === true && { time_zone: "" }),
    ...(timeZone !== undefined && { utc: false }),
    ...(utc !== undefined && { utc }),
    ...(timeZone !== undefined && { time_zone: timeZone }),
    ...(comment !== undefined && { comment }),
    ...(jitter !== undefined && { jitter_secs: jitter }),
    ...(retries !== undefined && { retries }),
    ...(catchUp !== undefined && { catch_up: catchUp }),
    ...(owner !== undefined && { owner }),
  };
}

/**
 * `Name: value` sets a header and `Name:` removes it, as in curl. Names are case-insensitive.
 * @throws UsageError
 */
function withHeaders(
  headers: JobAction["headers"],
  lines: readonly string[],
): Readonly<Record<string, string>> {
  const all = new Map(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), [name, value] as const]),
  );
  for (const line of lines) {
    const at = line.indexOf(":");
    const name = line.slice(0, Math.max(at, 0)).trim();
    if (name === "") throw new UsageError("--header must be 'Name: value'");
    const value = line.slice(at + 1).trim();
    if (value === "") all.delete(name.toLowerCase());
    else all.set(name.toLowerCase(), [name, value]);
  }
  return Object.fromEntries(all.values());
}
