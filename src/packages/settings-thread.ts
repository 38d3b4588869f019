/** The thread in which what package authors wrote is worked on: settings are held against their schema, long YAML is read. */
import { setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { createSettingsCheck } from "./settings-check.ts";
import type { SettingsCheck, SettingsFinding } from "./settings-check.ts";
import { readYaml } from "./yaml-document.ts";
import type { YamlAnswer, YamlTask } from "./yaml-thread.ts";

/** Of 20 of the kernel's steps, so that whoever asks the daemon comes before what authors wrote. On Linux it is this thread's alone. */
const nice = 10;
setPriority(nice);

const check = createSettingsCheck();

function answer(task: SettingsCheck | YamlTask): SettingsFinding | YamlAnswer {
  if ("schema" in task) return check(task);
  const result = readYaml(task.text, task.bounds);
  return "problems" in result ? result : { json: JSON.stringify(result.document.value) };
}

parentPort?.on("message", (task: SettingsCheck | YamlTask) => parentPort?.postMessage(answer(task)));
