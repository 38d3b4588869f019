/** The flags that say what a job is: for `svc schedule add` and `edit`. */
import { Option, type Command } from "commander";
import { ScheduleActionMethods, ScheduleCatchUps } from "../../../../gen/svc/v1/words.ts";
import { UsageError } from "../../failure.ts";
import { collect, parseCount, parseDuration } from "../../option-values.ts";
import type { Schedule, ScheduleRequest } from "../../transport/calls.ts";
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
    .option("--app <id>", "the app, for app_*, backup, backup_verify and, if wanted, shell")
    .option("--command <command>", "what /bin/sh runs, for shell")
    .option("--url <url>", "where to, for http")
    .addOption(new Option("--method <method>", "how, for http (default: GET)").choices(ScheduleActionMethods))
    .option("--header <header>", "'Name: value', for http; again for more", collect)
    .option("--body <text>", "what is sent, for http")
    .option("--keep-children", "leave what the command leaves behind when it ends, for shell")
    .option("--no-keep-children", "end it, which is the default")
    .option("--storage <name>", "where to, for backup; again for more (default: the app's own)", collect)
    .option("--keep <count>", "archives to keep, for backup", parseCount(1, 2 ** 32 - 1))
    .option("--timeout <time>", "longest run, such as 90s or 10m, at most 1h", parseDuration(1, 3600))
    .option("--utc", "read the trigger in UTC")
    .option("--time-zone <name>", "read the trigger in this time zone, such as Europe/Berlin")
    .option("--comment <text>", "a note for people")
    .option("--jitter <time>", "start up to this much late, by chance, at most 1h", parseDuration(0, 3600))
    .option("--retries <count>", "try a failed run again, at most 10 times", parseCount(0, 10))
    .addOption(
      new Option("--catch-up [which]", "run what was missed while the daemon was down, once")
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

/** @throws UsageError for a flag that is another action's */
function refuseForeignFlags(type: string, flags: JobFlags): void {
  const { needs, takes } = actionFlags[type] ?? { needs: [], takes: [] };
  const known: readonly string[] = [...needs, ...takes];
  for (const flag of allActionFlags) {
    if (flags[flag] !== undefined && !known.includes(flag)) {
      const takers = actionTypes.filter((each) => {
        const its = actionFlags[each];
        return its?.needs.includes(flag) === true || its?.takes.includes(flag) === true;
      });
      const name = flag === "keepChildren" ? "keep-children" : flag;
      throw new UsageError(`--${name} is for ${takers.join(", ")}, not for ${type}`);
    }
  }
}

/** @throws UsageError for a flag that the action cannot do without */
export function requireFlags(type: string, flags: JobFlags): void {
  const missing = (actionFlags[type]?.needs ?? []).filter((flag) => (flags[flag] ?? "") === "");
  if (missing.length > 0)
    throw new UsageError(`${type} needs ${missing.map((flag) => `--${flag}`).join(", ")}`);
}

/** An action that says nothing but its type. */
export function bareAction(type: string): JobAction {
  return { type, app: "", storages: [], command: "", headers: {}, body: "" };
}

/** Whether any flag but `--owner` is there. */
export function saysSomething({ owner: _owner, ...flags }: JobFlags): boolean {
  const others: readonly (keyof typeof flags)[] = [...allActionFlags, ...commonFlags];
  return others.some((flag) => flags[flag] !== undefined);
}

/** The job with what the flags say, and everything else as it is. @throws UsageError */
export function withFlags(job: ScheduleRequest, action: JobAction, flags: JobFlags): ScheduleRequest {
  refuseForeignFlags(action.type, flags);
  const { app, storage, keep, command, keepChildren, url, method, header, body, owner } = flags;
  // The job's own `keep` takes the place of its action's.
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
    // One clock takes the place of the other.
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
 * `Name: value` sets a header, `Name:` takes it away, as curl has it; names are compared without case.
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
