/** Sends alerts with the actions of jobs. */
import { SvcError } from "../../errors.ts";
import type { PlainAction } from "../../scheduler/actions/action.ts";
import type { AlertAction } from "./alert-rules.ts";
import type { AlertsOptions, Notification } from "./alerts.ts";

const timeoutMs = 60_000;

/** A command receives the alert in its environment, a server as JSON in the body of a POST. */
export function createNotifier(
  actions: Readonly<Record<AlertAction["type"], PlainAction>>,
  ownerUid: number,
): AlertsOptions["notify"] {
  return async (action, notification, signal) => {
    const either = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const job = { ownerUid, action: action.type === "shell" ? action : request(action.url, notification) };
    const work = { isRoot: true, signal: either, write: () => undefined, env: environment(notification) };
    const { error = "" } = await actions[action.type](job, work);
    if (error !== "") throw new SvcError("unavailable", error);
  };
}

function request(url: string, notification: Notification) {
  const headers = { "content-type": "application/json" };
  return { type: "http", url, method: "POST", headers, body: JSON.stringify(notification) } as const;
}

function environment({ alert, state, subjects }: Notification): Record<string, string> {
  return {
    SVC_ALERT: alert,
    SVC_ALERT_STATE: state,
    SVC_ALERT_MESSAGE: subjects
      .map(({ message }) => message)
      .join("\n")
      .slice(0, 32 * 1024),
  };
}
