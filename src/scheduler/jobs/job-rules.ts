/** Validates jobs beyond the rules of the contract. */
import type { ScheduleAction, UpsertScheduleRequest } from "../../../gen/svc/v1/schedule_pb.ts";
import type { ScheduleActionType, ScheduleCatchUp } from "../../../gen/svc/v1/values.ts";
import { snakeCase } from "../../lib/snake-case.ts";
import { readHeaders, type StoredHeaders } from "./header-rules.ts";
import type { Job, JobAction, JobSpec, Writable } from "./job.ts";
import type { Trigger, TriggerParser } from "../../triggers/trigger.ts";
import type { Zones } from "../../triggers/zone.ts";
import type { Violations } from "./violations.ts";

/** A job in a request; `Schedule` has the same fields. */
export type JobRequest = Pick<
  UpsertScheduleRequest,
  | "trigger"
  | "utc"
  | "enabled"
  | "comment"
  | "managedBy"
  | "action"
  | "timeout"
  | "keep"
  | "timeZone"
  | "jitterSecs"
  | "retries"
  | "catchUp"
>;

export interface JobRulesOptions {
  /** Prefix of field names, such as `schedules[3].`. */
  path: string;
  /** The stored job, whose header values may be kept. */
  stored: Job | undefined;
  /** Whether its owner is root, who may use every action; users may only act on their own apps. */
  isRoots: boolean;
}

const defaultTimeoutSecs = 600;

type ActionField = Exclude<keyof JobAction, "type">;

/** The fields of each action; the first is required. */
const fieldsOf: Readonly<Record<ScheduleActionType, readonly ActionField[]>> = {
  node_reboot: [],
  app_start: ["app"],
  app_stop: ["app"],
  app_restart: ["app"],
  app_update: ["app"],
  backup: ["app", "storages", "keep"],
  backup_verify: ["app", "storages"],
  shell: ["command", "app", "keepChildren"],
  http: ["url", "method", "headers", "body"],
};

/** Actions that users may use, always on their own apps. */
const usersActions: ReadonlySet<ScheduleActionType> = new Set([
  "app_start",
  "app_stop",
  "app_restart",
  "app_update",
  "backup",
  "backup_verify",
  "shell",
]);

/** Reads jobs from requests; parsed triggers are cached. */
export class JobRules {
  readonly #zones: Zones;
  readonly #triggers: TriggerParser;

  constructor(zones: Zones, triggers: TriggerParser) {
    this.#zones = zones;
    this.#triggers = triggers;
  }

  /** Converts a request to a job. Adds problems to `violations`; the result is then invalid. */
  read(request: JobRequest, options: JobRulesOptions, violations: Violations): JobSpec {
    const { path } = options;
    const { managedBy = "" } = request;
    checkText(request.comment, path, "comment", violations);
    checkText(managedBy, path, "managed_by", violations);
    const action = readAction(request.action, options, violations);
    if (action.keep !== undefined && request.keep !== undefined && action.keep !== request.keep) {
      violations.add(`${path}action.keep`, `must equal keep, which is ${request.keep}, or be omitted`);
    }
    if (action.type === "node_reboot" && request.catchUp === "latest") {
      violations.add(`${path}catch_up`, 'must be "none" for node_reboot: a missed reboot is not repeated');
    }
    const trigger = this.readTrigger(request.trigger, path, violations);
    if (trigger.event !== undefined && request.catchUp === "latest")
      violations.add(`${path}catch_up`, 'must be "none" for an event trigger');
    const spec: Writable<JobSpec> = {
      trigger,
      timeZone: this.readTimeZone(request.utc, request.timeZone, path, violations),
      enabled: request.enabled ?? true,
      comment: request.comment,
      managedBy,
      action,
      timeoutSecs: request.timeout ?? defaultTimeoutSecs,
      jitterSecs: request.jitterSecs,
      retries: request.retries,
      catchUp: request.catchUp === "" ? "none" : (request.catchUp as ScheduleCatchUp),
    };
    if (request.keep !== undefined) spec.keep = request.keep;
    return spec;
  }

  /** @param path prefix of the field's name */
  readTrigger(text: string, path: string, violations: Violations): Trigger {
    const trigger = this.#triggers.readNew(text);
    if (typeof trigger !== "string") return trigger;
    violations.add(`${path}trigger`, trigger);
    return this.#triggers.parse("hourly");
  }

  /**
   * The stored time zone: `UTC`, an IANA name, or empty for the node's local time.
   * @param path prefix of the field's name
   */
  readTimeZone(isUtc: boolean, name: string, path: string, violations: Violations): string {
    if (name === "") return isUtc ? "UTC" : "";
    const field = `${path}time_zone`;
    if (isUtc) violations.add(field, "must be omitted if utc is true");
    else if (!this.#zones.isKnown(name)) {
      violations.add(field, `"${name}" must be UTC or an IANA time zone such as Europe/Berlin`);
    }
    return name;
  }
}

/** The stored action. Adds problems to `violations`; the result is then invalid. */
export function readAction(
  given: ScheduleAction | undefined,
  { path, stored, isRoots }: JobRulesOptions,
  violations: Violations,
): JobAction {
  const { type = "", app = "", storages = [], keep, command = "", url = "" } = given ?? {};
  const { method = "", headers = {}, body = "", keepChildren = false } = given ?? {};
  const action: Writable<JobAction> = { type: type as ScheduleActionType };
  if (app !== "") action.app = app;
  if (storages.length > 0) action.storages = storages;
  if (keep !== undefined) action.keep = keep;
  if (command !== "") action.command = command;
  if (url !== "") action.url = url;
  if (method !== "") action.method = method;
  if (Object.keys(headers).length > 0) action.headers = headers;
  if (body !== "") action.body = body;
  if (keepChildren) action.keepChildren = keepChildren;
  const allowed = fieldsOf[action.type];
  for (const field in action) {
    if (field === "type" || allowed.includes(field as ActionField)) continue;
    violations.add(`${path}action.${snakeCase(field)}`, `is not for ${type}`);
  }
  const [required] = allowed;
  if (required !== undefined && action[required] === undefined) {
    violations.add(`${path}action.${required}`, `is required for ${type}`);
  }
  if (command !== "" && command.trim() === "") violations.add(`${path}action.command`, "must not be blank");
  if (!isRoots) checkUsersAction(action, path, violations);
  checkText(app, path, "action.app", violations);
  checkText(command, path, "action.command", violations);
  checkText(body, path, "action.body", violations);
  for (const [index, name] of storages.entries()) {
    checkText(name, path, `action.storages[${index}]`, violations);
  }
  const problem = url === "" ? undefined : urlProblem(url);
  if (problem !== undefined) violations.add(`${path}action.url`, problem);
  if (action.headers !== undefined) {
    action.headers = readHeaders(headers, storedHeaders(stored, url), `${path}action.headers`, violations);
  }
  return action;
}

function storedHeaders(stored: Job | undefined, url: string): StoredHeaders {
  const { headers = {}, url: storedUrl = "" } = stored?.action ?? {};
  const [before, now] = [storedUrl, url].map((text) => URL.parse(text)?.origin);
  return { headers, leftOrigin: before === now ? undefined : before };
}

function checkUsersAction({ type, app }: JobAction, path: string, violations: Violations): void {
  if (!usersActions.has(type)) {
    violations.add(
      `${path}action.type`,
      `${type} is for root's jobs; a user's must be one of ${[...usersActions].join(", ")}`,
    );
  } else if (app === undefined) {
    violations.add(`${path}action.app`, "is required: a user's jobs act on the user's own apps");
  }
}

/** Arguments and environments of processes cannot contain NUL. */
function checkText(text: string, path: string, field: string, violations: Violations): void {
  if (text.includes("\0")) violations.add(`${path}${field}`, "must not hold NUL bytes");
}

function urlProblem(url: string): string | undefined {
  // Without a host, a URL parser would use the path as the host.
  if (/^https?:\/\/(?:[/\\?#]|$)/i.test(url)) return "must have a host";
  const parsed = URL.parse(url);
  if (parsed === null || parsed.hostname === "") return "must be an http:// or https:// URL with a host";
  return undefined;
}
