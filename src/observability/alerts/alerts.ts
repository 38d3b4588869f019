/**
 * Reports once when a condition of a rule starts and once when it is over. A condition must last before it counts, and everything
 * that one rule finds at a time is one notification.
 */
import { isAbsolute } from "node:path";
import { pause, type Clock } from "../../lib/clock.ts";
import { findingsOf, type AlertAction, type AlertFacts, type AlertRule } from "./alert-rules.ts";
import type { Alert, AlertStore } from "./alert-store.ts";
import type { Log } from "../../lib/log.ts";

/** The content of a notification. */
export interface Notification {
  readonly alert: string;
  readonly state: "firing" | "resolved";
  readonly subjects: readonly { readonly subject: string; readonly message: string }[];
}

export interface AlertsOptions {
  rules: readonly AlertRule[];
  store: AlertStore;
  facts: () => Promise<AlertFacts>;
  /** @throws if the notification was not delivered */
  notify: (action: AlertAction, notification: Notification, signal: AbortSignal) => Promise<void>;
  /** Called when an alert starts and when it is over. */
  onChange: (alert: Alert, isOfHost: boolean) => void;
  clock: Clock;
  /** Milliseconds between two checks. */
  intervalMs: number;
  log: Pick<Log, "warn">;
}

/** Maximum simultaneous alerts of one rule; more would not add information. */
const maxPerRule = 1_000;
/** First and longest delay before a failed notification is sent again. */
const retryMs = { first: 10_000, most: 15 * 60_000 };

export class Alerts implements AsyncDisposable {
  readonly #options: AlertsOptions;
  /** When a condition started, or when it ended, by rule and subject; unix milliseconds. */
  readonly #changing = new Map<string, number>();
  /** By rule. */
  readonly #retries = new Map<string, { atMs: number; delayMs: number }>();
  readonly #ended = new AbortController();
  #all: readonly Alert[];
  #work: Promise<void> = Promise.resolve();

  #rules: readonly AlertRule[] = [];

  constructor(options: AlertsOptions) {
    this.#options = options;
    this.configure(options.rules);
    this.#all = options.store.all();
  }

  /** Uses these rules from the next check on. */
  configure(rules: readonly AlertRule[]): void {
    this.#rules = rules;
    // Do not wait for the retry delay: the new address may accept what the old one rejected.
    this.#retries.clear();
    const names = new Set(rules.map(({ name }) => name));
    for (const key of this.#changing.keys())
      if (!names.has(key.slice(0, key.indexOf("\n")))) this.#changing.delete(key);
  }

  /** Alerts that are not over. @param apps IDs of the apps that the caller may see; undefined: all */
  firing(apps?: ReadonlySet<string>): readonly Alert[] {
    return this.#all.filter(
      (alert) => isUnresolved(alert) && (apps === undefined || apps.has(alert.subject) || isOfHost(alert)),
    );
  }

  start(): void {
    this.#work = this.#run();
  }

  async #run(): Promise<void> {
    const { clock, intervalMs, log } = this.#options;
    const { signal } = this.#ended;
    await this.#options.store
      .forgetUnreadable()
      .catch((error: unknown) => log.warn({ err: error }, "failed to delete damaged alerts"));
    for (let isEnded = false; !isEnded;) {
      try {
        await this.evaluate();
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error }, "failed to check the alerts");
      }
      isEnded = await pause(clock, intervalMs, signal).then(
        () => false,
        () => true,
      );
    }
  }

  /** Checks every rule once, and sends the notifications. */
  async evaluate(): Promise<void> {
    const rules = this.#rules;
    const { facts } = this.#options;
    const names = new Set(rules.map(({ name }) => name));
    await this.#end(this.#all.filter(({ rule }) => !names.has(rule)));
    if (rules.length === 0) return;
    const known = await facts();
    for (const rule of rules) {
      await this.#judge(rule, known);
      await this.#notify(rule, known.nowMs);
    }
  }

  /** Removes alerts of rules that no longer exist: they are not checked, and their actions are unknown. */
  async #end(alerts: readonly Alert[]): Promise<void> {
    await this.#store([], alerts);
    const resolvedAtMs = this.#options.clock.nowMs();
    for (const alert of alerts.filter(isUnresolved)) this.#change({ ...alert, resolvedAtMs });
  }

  #change(alert: Alert): void {
    this.#options.onChange(alert, isOfHost(alert));
  }

  async #judge(rule: AlertRule, facts: AlertFacts): Promise<void> {
    const found = findingsOf(rule, facts);
    if (found === undefined) return;
    const { nowMs } = facts;
    const messages = new Map(found.slice(0, maxPerRule).map(({ subject, message }) => [subject, message]));
    const own = new Map(
      this.#all.filter((alert) => alert.rule === rule.name).map((alert) => [alert.subject, alert]),
    );
    const put: Alert[] = [];
    for (const subject of new Set([...messages.keys(), ...own.keys()])) {
      const [message, alert] = [messages.get(subject), own.get(subject)];
      const isSo = message !== undefined;
      if (isSo === (alert !== undefined && isUnresolved(alert)))
        this.#changing.delete(`${rule.name}\n${subject}`);
      else if (this.#hasLasted(rule, subject, nowMs)) {
        const firedAtMs = alert?.firedAtMs ?? nowMs;
        put.push(
          isSo
            ? {
                rule: rule.name,
                subject,
                message,
                firedAtMs,
                resolvedAtMs: undefined,
                isReported: alert?.isReported ?? false,
              }
            : { ...(alert as Alert), resolvedAtMs: nowMs },
        );
      }
    }
    this.#forgetGone(rule, new Set([...messages.keys(), ...own.keys()]));
    await this.#store(put, []);
    for (const alert of put) this.#change(alert);
  }

  #hasLasted({ name, forSecs }: AlertRule, subject: string, nowMs: number): boolean {
    const key = `${name}\n${subject}`;
    const sinceMs = Math.min(this.#changing.get(key) ?? nowMs, nowMs);
    this.#changing.set(key, sinceMs);
    return nowMs - sinceMs >= forSecs * 1000 && this.#changing.delete(key);
  }

  /** Drops conditions that were over before they counted. */
  #forgetGone({ name }: AlertRule, subjects: ReadonlySet<string>): void {
    for (const key of this.#changing.keys()) {
      const [rule, subject = ""] = key.split("\n");
      if (rule === name && !subjects.has(subject)) this.#changing.delete(key);
    }
  }

  /**
   * The alert is marked as reported after it was sent. If the daemon is killed in between, the next one sends it again; the
   * other order could lose it.
   */
  async #notify(rule: AlertRule, nowMs: number): Promise<void> {
    const own = this.#all.filter((alert) => alert.rule === rule.name);
    // An alert that was over before it was reported is not sent.
    const passed = own.filter(({ isReported, resolvedAtMs }) => !isReported && resolvedAtMs !== undefined);
    const begun = own.filter(({ isReported, resolvedAtMs }) => !isReported && resolvedAtMs === undefined);
    const over = own.filter(({ isReported, resolvedAtMs }) => isReported && resolvedAtMs !== undefined);
    await this.#store([], passed);
    if (begun.length > 0 && (await this.#send(rule, "firing", begun, nowMs))) {
      await this.#store(
        begun.map((alert) => ({ ...alert, isReported: true })),
        [],
      );
    }
    if (over.length > 0 && (await this.#send(rule, "resolved", over, nowMs))) await this.#store([], over);
  }

  /** Resolves to whether it was delivered. */
  async #send(
    rule: AlertRule,
    state: Notification["state"],
    alerts: readonly Alert[],
    nowMs: number,
  ): Promise<boolean> {
    const { notify, log } = this.#options;
    if (rule.action === undefined) return true;
    const retry = this.#retries.get(rule.name);
    if (retry !== undefined && nowMs < retry.atMs) return false;
    const subjects = alerts.map(({ subject, message }) => ({ subject, message }));
    try {
      await notify(rule.action, { alert: rule.name, state, subjects }, this.#ended.signal);
      this.#retries.delete(rule.name);
      return true;
    } catch (error) {
      const delayMs = Math.min(retryMs.most, (retry?.delayMs ?? retryMs.first / 2) * 2);
      this.#retries.set(rule.name, { atMs: nowMs + delayMs, delayMs });
      if (!this.#ended.signal.aborted)
        log.warn({ err: error, alert: rule.name }, "failed to deliver an alert");
      return false;
    }
  }

  async #store(put: readonly Alert[], remove: readonly Alert[]): Promise<void> {
    if (put.length === 0 && remove.length === 0) return;
    await this.#options.store.write(put, remove);
    this.#all = this.#options.store.all();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await this.#work;
  }
}

function isUnresolved({ resolvedAtMs }: Alert): boolean {
  return resolvedAtMs === undefined;
}

/** Alerts about a mount point are visible to all users; all others belong to an app. */
function isOfHost({ subject }: Alert): boolean {
  return isAbsolute(subject);
}
