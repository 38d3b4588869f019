import { readFileSync } from "node:fs";
import { readProcess } from "../../sys/process-table.mjs";

/** @import { SupervisorSpec, SupervisorState } from "./supervisor-types.ts" */

/**
 * @param {SupervisorSpec} spec
 * @returns {SupervisorState}
 */
export function initialState({ appId, runId }) {
  return {
    version: 1,
    appId,
    runId,
    bootId: readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim(),
    supervisor: { pid: process.pid, startTicks: readProcess(process.pid)?.startTicks ?? 0 },
    phase: "STARTING",
    startFailed: false,
    settled: false,
    app: null,
    restarts: 0,
    health: null,
    exits: [],
    leftover: 0,
    final: false,
  };
}
