/**
 * Parses the messages of a supervisor. It runs as the app's owner, who may replace it: every value is checked and
 * limited, and unknown ones are dropped.
 */
import { hasMoreStructure, isObject } from "../../lib/json.ts";
import type {
  ExitRecord,
  HealthState,
  HelloMessage,
  SupervisorMessage,
  SupervisorPhase,
  SupervisorState,
} from "./supervisor-types.ts";

/** Longest line of the protocol, in UTF-16 units: enough for a full chunk of the log with every byte escaped. */
export const maxMessageLength = 2 * 1024 * 1024;

const phases: readonly SupervisorPhase[] = ["STARTING", "RUNNING", "STOPPING", "STOPPED", "CRASHED"];
const healthStates: readonly HealthState[] = ["starting", "healthy", "unhealthy"];
/** Long messages consist of text. Parsing half a million empty lists would block the event loop. */
const maxStructure = 64 * 1024;
const maxTextChars = 4096;
const maxLineChars = 1024;
const maxLines = 20;
const maxExits = 10;

type Fields = Readonly<Record<string, unknown>>;

/** Parses one line of the protocol; undefined if this version does not support it. */
export function parseMessage(line: string): SupervisorMessage | undefined {
  const fields = parseObject(line);
  switch (fields?.["type"]) {
    case "hello":
      return parseHello(fields);
    case "reply":
      return parseReply(fields);
    case "state": {
      const state = toState(fields["state"]);
      return state && { type: "state", state };
    }
    case "log": {
      const [stretch, content] = [stretchOf(fields), fields["text"]];
      return stretch && typeof content === "string" ? { type: "log", ...stretch, text: content } : undefined;
    }
    case "gap": {
      const stretch = stretchOf(fields);
      return stretch && { type: "gap", ...stretch };
    }
    case "output": {
      const { data } = fields as { data: unknown };
      return typeof data === "string" ? { type: "output", data } : undefined;
    }
    case "missed":
      return { type: "missed", bytes: count(fields["bytes"]) };
    case "ended":
      return { type: "ended", code: Math.min(count(fields["code"]), 255) };
    default:
      return undefined;
  }
}

/** Parses `state.json`; undefined if it is damaged. */
export function parseState(json: string): SupervisorState | undefined {
  return toState(parseObject(json));
}

function parseHello(fields: Fields): HelloMessage {
  const protocol = isObject(fields["protocol"]) ? fields["protocol"] : {};
  return {
    type: "hello",
    protocol: { min: count(protocol["min"]), max: count(protocol["max"]) },
    svcVersion: text(fields["svcVersion"]),
    appId: text(fields["appId"]),
    runId: text(fields["runId"]),
    bootId: text(fields["bootId"]),
    pid: count(fields["pid"]),
    startTicks: count(fields["startTicks"]),
  };
}

function parseReply(fields: Fields): SupervisorMessage {
  const id = count(fields["id"]);
  if (fields["ok"] !== true) return { type: "reply", id, ok: false, error: text(fields["error"]) };
  return { type: "reply", id, ok: true };
}

function toState(value: unknown): SupervisorState | undefined {
  if (!isObject(value)) return undefined;
  const phase = phases.find((word) => word === value["phase"]);
  const { supervisor, app, exits } = value as { supervisor: unknown; app: unknown; exits: unknown };
  if (phase === undefined || !isObject(supervisor)) return undefined;
  return {
    version: 1,
    appId: text(value["appId"]),
    runId: text(value["runId"]),
    bootId: text(value["bootId"]),
    supervisor: { pid: count(supervisor["pid"]), startTicks: count(supervisor["startTicks"]) },
    phase,
    ...(typeof value["reason"] === "string" && { reason: text(value["reason"]) }),
    startFailed: value["startFailed"] === true,
    settled: value["settled"] === true,
    ...(value["interrupted"] === true && { interrupted: true }),
    ...(typeof value["nextRestartAt"] === "string" && { nextRestartAt: instant(value["nextRestartAt"]) }),
    app: isObject(app)
      ? { pid: count(app["pid"]), startTicks: count(app["startTicks"]), startedAt: instant(app["startedAt"]) }
      : null,
    restarts: count(value["restarts"]),
    health: healthStates.find((word) => word === value["health"]) ?? null,
    ...(typeof value["healthReason"] === "string" && { healthReason: text(value["healthReason"]) }),
    exits: Array.isArray(exits) ? exits.slice(-maxExits).filter(isObject).map(toExit) : [],
    leftover: count(value["leftover"]),
    ...(value["frozen"] === true && { frozen: true }),
    final: value["final"] === true,
  };
}

function toExit(fields: Fields): ExitRecord {
  const { code, signal, lastLines, error } = fields as Record<
    "code" | "signal" | "lastLines" | "error",
    unknown
  >;
  return {
    code: typeof code === "number" && Number.isInteger(code) && code >= 0 && code <= 255 ? code : null,
    signal:
      typeof signal === "string" && /^SIG[A-Z0-9]{2,10}$/.test(signal) ? (signal as NodeJS.Signals) : null,
    at: instant(fields["at"]),
    ranMs: count(fields["ranMs"]),
    lastLines: Array.isArray(lastLines)
      ? lastLines.slice(-maxLines).map((line) => text(line).slice(0, maxLineChars))
      : [],
    ...(typeof error === "string" && { error: text(error) }),
  };
}

/** A range of the log; undefined for one that ends before it begins. */
function stretchOf(fields: Fields): { from: number; to: number } | undefined {
  const [from, to] = [count(fields["from"]), count(fields["to"])];
  return from <= to ? { from, to } : undefined;
}

function parseObject(json: string): Fields | undefined {
  if (json.length > maxStructure && hasMoreStructure(json, maxStructure)) return undefined;
  try {
    const value: unknown = JSON.parse(json);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value.slice(0, maxTextChars) : "";
}

function count(value: unknown): number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}

/** RFC 3339; the epoch for an invalid time. */
function instant(value: unknown): string {
  const ms = Date.parse(text(value));
  return new Date(Number.isNaN(ms) ? 0 : ms).toISOString();
}
