/** The thread in which what package authors wrote is worked on: settings are held against their schema, long YAML is read. */
import { parentPort } from "node:worker_threads";
import { createSettingsCheck } from "./settings-check.ts";
import type { SettingsCheck, SettingsFinding } from "./settings-check.ts";
import { readYaml } from "./yaml-document.ts";
import type { YamlAnswer, YamlTask } from "./yaml-thread.ts";

const check = createSettingsCheck();

function answer(task: SettingsCheck | YamlTask): SettingsFinding | YamlAnswer {
  if ("schema" in task) return check(task);
  const result = readYaml(task.text, task.bounds);
  return "problems" in result ? result : { json: JSON.stringify(result.document.value) };
}

parentPort?.on("message", (task: SettingsCheck | YamlTask) => parentPort?.postMessage(answer(task)));
