/** The daemon's log: one JSON object per line on standard error, without anything secret. */
import { pino, type Logger } from "pino";
import type { LogLevel } from "./config.ts";

export type DaemonLog = Logger;

/** Writes beside the event loop; what is still buffered is written when the process ends. */
export function createLog(level: LogLevel): DaemonLog {
  const destination = pino.destination({ fd: 2, sync: false });
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, destination);
}
