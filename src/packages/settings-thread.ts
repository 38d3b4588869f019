/** The thread in which settings are held against their schema. */
import { parentPort } from "node:worker_threads";
import { createSettingsCheck } from "./settings-check.ts";
import type { SettingsCheck } from "./settings-check.ts";

const check = createSettingsCheck();
parentPort?.on("message", (task: SettingsCheck) => parentPort?.postMessage(check(task)));
