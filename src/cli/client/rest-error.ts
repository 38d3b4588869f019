/** Converts the daemon's REST errors back to the SvcError that it threw. */
import { SvcError, knownReason, type ReasonPayload } from "../../errors.ts";
import type { ErrorDetailReason } from "../../../gen/svc/v1/values.ts";
import type { JsonObject } from "./rest-shape.ts";

/** @param text the body: `{"error", "code", "reason", "<reason>": payload}` */
export function restError(status: number, text: string): SvcError {
  const body = parseObject(text);
  if (typeof body?.["error"] !== "string" || typeof body["code"] !== "string") {
    const message = `the server is not an svc daemon: it responded with HTTP ${status}`;
    return new SvcError("unavailable", message);
  }
  const reason = knownReason(body["reason"], body["code"]);
  const payload = body[reason];
  return new SvcError(reason, body["error"], {
    ...(payload === undefined ? {} : { payload: camelKeys(payload as JsonObject) }),
  });
}

function parseObject(text: string): JsonObject | undefined {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null ? (value as JsonObject) : undefined;
  } catch {
    return undefined;
  }
}

/** `{exit_code}` → `{exitCode}`, for payloads at most as deep as lists of plain objects. */
function camelKeys(payload: JsonObject): ReasonPayload<ErrorDetailReason> {
  const entries = Object.entries(payload).map(([key, value]) => [
    key.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  return Object.fromEntries(entries) as ReasonPayload<ErrorDetailReason>;
}
